// The command on specs with `pass: backward`, on the simulator.
#include "cli_harness.h"

namespace tilewright::cli_test {
namespace {

class Backward : public CommandTest {};

TEST_F(Backward, RunChecksTheGradients) {
  const Result result = tilewright({"run", shipped("llama-3-8b-train"), "--seqlen-q", "40", "--seqlen-kv",
                                    "70", "--device", "simulator", "--check"});
  EXPECT_EQ(result.code, 0) << result.err << result.out;
  EXPECT_TRUE(result.out.ends_with("\nok\n")) << result.out;
  for (const char* part : {"attention_backward_prepare, attention_backward, attention_backward_finish",
                           "dQ error", "dK error", "dV error", "workspace "})
    EXPECT_TRUE(contains(result.out, part)) << part << "\n" << result.out;
}

TEST_F(Backward, RunTakesDropout) {
  const Result result = tilewright({"run", shipped("gpt-2-train"), "--seqlen-q", "70", "--heads", "2",
                                    "--dropout-rate", "0.3", "--dropout-seed", "5", "--device", "simulator"});
  EXPECT_EQ(result.code, 0) << result.err << result.out;
  EXPECT_TRUE(result.out.ends_with("\nok\n")) << result.out;
}

TEST_F(Backward, RunRefusesWhatIsTheForwardPasss) {
  const Result result =
      tilewright({"run", shipped("llama-3-8b-train"), "--device", "simulator", "--out", "out.npy"});
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(contains(result.err, "--out: not for `pass: backward`")) << result.err;
}

// The memory beside the tensors, at the peak, in every mode.
TEST_F(Backward, ExplainPrintsMemoryThatIsLinear) {
  write("spec.yaml", "pass: backward\nhead_dim: 64\ndeterministic: true\n");
  for (const std::string& spec :
       {shipped("gemma-2-9b-train"), shipped("qwen2.5-7b-train"), std::string("spec.yaml")}) {
    const auto bytes = [&](const char* rows) {
      const Result result =
          tilewright({"explain", spec, "--target", "sm_80", "--no-compile", "--json", "--seqlen-q", rows});
      EXPECT_EQ(result.code, 0) << result.err;
      return result.json()["workspace_bytes"].get<double>();
    };
    EXPECT_NEAR(bytes("65536") / bytes("16384"), 4, 0.01) << spec;
  }
  const Result text = tilewright({"explain", "spec.yaml", "--target", "sm_80", "--no-compile"});
  EXPECT_TRUE(contains(text.out, "linear in the lengths")) << text.out;
}

}  // namespace
}  // namespace tilewright::cli_test
