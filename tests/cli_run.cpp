// tilewright run, on the simulator.
#include <cmath>

#include "cli/npy.h"
#include "cli_harness.h"

namespace tilewright::cli_test {
namespace {

class Run : public CommandTest {
 protected:
  Result run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "run");
    arguments.insert(arguments.end(), {"--device", "simulator"});
    return tilewright(arguments);
  }
};

TEST_F(Run, SaysWhatWasMadeAndThatItIsRight) {
  Result result = run({shipped("llama-3-8b-prefill"), "--seqlen-q", "65", "--seqlen-kv", "130"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(result.out.ends_with("\nok\n")) << result.out;
  for (const char* part :
       {"llama-3-8b-prefill", "sm_80", "schedule    sm80, m ", "compile     ", "cache miss",
        "batch 1, 4 query heads over 1 KV head, 65 queries, 130 keys", "allowed; against fp64"}) {
    EXPECT_TRUE(contains(result.out, part)) << part << "\n" << result.out;
  }
}

TEST_F(Run, JsonHoldsTheSame) {
  write("spec.yaml", "head_dim: {qk: 40, v: 24}\ndtype: fp16\nlayout: bhsd\nlse: true\n");
  Result result = run({"spec.yaml", "--batch", "2", "--heads", "3", "--seqlen-q", "17", "--seqlen-kv", "33",
                       "--target", "sm_89", "--json"});
  EXPECT_EQ(result.code, 0) << result.err;
  nlohmann::json json = result.json();
  EXPECT_EQ(json["ok"], true);
  EXPECT_EQ(json["target"], "sm_89");
  EXPECT_EQ(json["shape"]["batch"], 2);
  EXPECT_EQ(json["shape"]["seqlen_kv"], 33);
  EXPECT_EQ(json["guards_intact"], true);
  EXPECT_LE(json["error"]["maximum"], json["error"]["maximum_allowed"]);
  EXPECT_GT(json["error"]["lse_allowed"], 0);
}

TEST_F(Run, PackedSequencesWithSinks) {
  write("spec.yaml", "head_dim: 32\nlayout: packed\nmask: causal\nlse: true\nsinks: true\n");
  for (const char* target : {"sm_80", "sm_90a"}) {
    Result result = run({"spec.yaml", "--lengths-q", "12,0,40", "--lengths-kv", "20,7,33", "--heads", "2",
                         "--target", target});
    EXPECT_EQ(result.code, 0) << result.err << result.out;
    EXPECT_TRUE(contains(result.out, "packed, mean lengths: batch 3")) << result.out;
  }
  Result uneven = run({"spec.yaml", "--lengths-q", "12,0", "--lengths-kv", "20"});
  EXPECT_EQ(uneven.code, 2);
  EXPECT_TRUE(contains(uneven.err, "--lengths-q has 2 lengths, --lengths-kv 1")) << uneven.err;
  write("other.yaml", "head_dim: 32\n");
  EXPECT_EQ(run({"other.yaml", "--lengths-q", "12"}).code, 2);
}

TEST_F(Run, ListsOfBlocksAreDrawn) {
  write("spec.yaml", "head_dim: 32\nlse: true\nmask: {blocks: {m: 64, n: 64}, with: causal}\n");
  for (const char* target : {"sm_80", "sm_90a"}) {
    Result result = run({"spec.yaml", "--heads", "2", "--seqlen-q", "130", "--target", target});
    EXPECT_EQ(result.code, 0) << result.err << result.out;
  }
}

TEST_F(Run, RealInputAgainstItsKeptAnswer) {
  const std::string data = TILEWRIGHT_SOURCE_DIR "/specs/data/minilm-l6-v2/";
  Result result = run({shipped("minilm-l6-v2"), "--q", data + "q.npy", "--k", data + "k.npy", "--v",
                       data + "v.npy", "--expect", data + "out.npy", "--out", "out.npy"});
  EXPECT_EQ(result.code, 0) << result.err << result.out;
  EXPECT_TRUE(contains(result.out, "12 query heads over 12 KV heads"));
  EXPECT_TRUE(contains(result.out, "expected    "));
  cli::NpyArray got = cli::read_npy(folder / "out.npy"), expected = cli::read_npy(data + "out.npy");
  ASSERT_EQ(got.shape, expected.shape);
  double largest = 0;
  for (size_t i = 0; i < got.values.size(); ++i) {
    largest = std::max(largest, std::abs(got.values[i] - expected.values[i]));
  }
  EXPECT_GT(largest, 0);
  EXPECT_LT(largest, 0.01);
}

TEST_F(Run, AnotherAnswerIsWrong) {
  const std::string data = TILEWRIGHT_SOURCE_DIR "/specs/data/minilm-l6-v2/";
  cli::NpyArray answer = cli::read_npy(data + "out.npy");
  for (double wrong : {1.0, std::nan("")}) {
    answer.values[1234] = wrong * 100;
    cli::write_npy(folder / "wrong.npy", answer.shape, answer.values);
    Result result = run({shipped("minilm-l6-v2"), "--q", data + "q.npy", "--k", data + "k.npy", "--v",
                         data + "v.npy", "--expect", "wrong.npy"});
    EXPECT_EQ(result.code, 1);
    EXPECT_TRUE(result.out.ends_with("\nWRONG\n")) << result.out;
  }
}

TEST_F(Run, TheSeedDecidesTheInputsAndNothingElse) {
  write("bshd.yaml", "head_dim: 32\nlse: true\nblocks: {m: 16, warps: 1}\n");
  write("bhsd.yaml", "head_dim: 32\nlse: true\nblocks: {m: 16, warps: 1}\nlayout: bhsd\n");
  auto output = [&](const char* spec, const char* seed) {
    Result result = run(
        {spec, "--heads", "2", "--seqlen-q", "20", "--seed", seed, "--out", "out.npy", "--lse", "lse.npy"});
    EXPECT_EQ(result.code, 0) << result.err << result.out;
    return contents(folder / "out.npy") + contents(folder / "lse.npy");
  };
  std::string first = output("bshd.yaml", "7");
  EXPECT_EQ(output("bshd.yaml", "7"), first);
  EXPECT_EQ(output("bhsd.yaml", "7"), first);
  EXPECT_NE(output("bshd.yaml", "8"), first);
}

TEST_F(Run, NothingToDoIsFine) {
  write("spec.yaml", "head_dim: 32\nlse: true\n");
  for (const char* option : {"--batch", "--seqlen-q", "--seqlen-kv"}) {
    Result result = run({"spec.yaml", option, "0"});
    EXPECT_EQ(result.code, 0) << option << result.err << result.out;
  }
}

TEST_F(Run, WithoutChecking) {
  write("spec.yaml", "head_dim: 32\n");
  Result result = run({"spec.yaml", "--no-check", "--seqlen-q", "16"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(result.out.ends_with("\nnot checked\n")) << result.out;
}

TEST_F(Run, ScaleAtLaunch) {
  write("launch.yaml", "head_dim: 32\nsoftmax_scale: launch\n");
  write("fixed.yaml", "head_dim: 32\n");
  EXPECT_EQ(run({"launch.yaml", "--seqlen-q", "16", "--softmax-scale", "0.5"}).code, 0);
  EXPECT_EQ(run({"launch.yaml", "--seqlen-q", "16"}).code, 0);
  Result refused = run({"fixed.yaml", "--seqlen-q", "16", "--softmax-scale", "0.5"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(contains(refused.err, "softmax_scale was given")) << refused.err;
}

TEST_F(Run, ArgumentsThatDoNotFitTheSpec) {
  write("spec.yaml", "head_dim: 32\ngqa_ratio: 3\n");
  const int64_t q_shape[] = {1, 4, 6, 32}, k_shape[] = {1, 4, 3, 32}, flat[] = {128};
  cli::write_npy(folder / "q.npy", q_shape, std::vector<double>(4 * 6 * 32));
  cli::write_npy(folder / "k.npy", k_shape, std::vector<double>(4 * 3 * 32));
  cli::write_npy(folder / "flat.npy", flat, std::vector<double>(128));
  write("broken.npy", "not NumPy at all");
  struct {
    std::vector<std::string> arguments;
    int code;
    const char* message;
  } cases[] = {
      {{"--heads", "4"}, 2, "4 heads are not divisible by the spec's gqa_ratio 3; nearest: 3"},
      {{"--lse", "lse.npy"}, 2, "spec.yaml does not ask for LSE; add `lse: true`"},
      {{"--q", "q.npy", "--k", "k.npy", "--v", "k.npy"}, 2, "gqa_ratio"},
      {{"--q", "flat.npy", "--k", "k.npy", "--v", "k.npy"},
       2,
       "flat.npy has shape [128]; expected [batch, sequence, "},
      {{"--q", "missing.npy", "--k", "k.npy", "--v", "k.npy"}, 3, "missing.npy cannot be read"},
      {{"--q", ".", "--k", "k.npy", "--v", "k.npy"}, 3, ". cannot be read"},
      {{"--q", "broken.npy", "--k", "k.npy", "--v", "k.npy"}, 2, "broken.npy is not a .npy file"},
      {{"--seqlen-q", "16", "--expect", "q.npy"},
       2,
       "q.npy has shape [1, 4, 6, 32]; the output has [1, 16, 3, 32]"},
      {{"--seqlen-q", "16", "--out", "no/folder/out.npy"}, 3, "no/folder/out.npy cannot be written"},
      {{"--batch", "1000000000", "--seqlen-q", "100000"}, 2, "too large"},
  };
  for (const auto& bad : cases) {
    std::vector<std::string> arguments = {"spec.yaml"};
    arguments.insert(arguments.end(), bad.arguments.begin(), bad.arguments.end());
    Result result = run(arguments);
    EXPECT_EQ(result.code, bad.code) << bad.message << "\n" << result.err << result.out;
    EXPECT_TRUE(contains(result.err, bad.message)) << result.err;
  }
}

TEST_F(Run, SpecsWithoutAKernelNeverRunAsSomethingElse) {
  for (const char* line : {"pass: decode", "dtype: e4m3", "rope: half"}) {
    write("spec.yaml", std::string("head_dim: 64\n") + line + "\n");
    Result result = run({"spec.yaml"});
    EXPECT_EQ(result.code, 2) << line;
    EXPECT_TRUE(contains(result.err, "has no kernel yet")) << result.err;
    EXPECT_EQ(result.out, "");
  }
}

TEST_F(Run, NoDriverIsAnErrorOnlyWhereCudaWasAskedFor) {
  environment["TILEWRIGHT_DRIVER"] = "/nonexistent/libcuda.so";
  write("spec.yaml", "head_dim: 32\n");
  Result cuda = tilewright({"run", "spec.yaml", "--device", "cuda"});
  EXPECT_EQ(cuda.code, 3);
  EXPECT_TRUE(contains(cuda.err, "/nonexistent/libcuda.so")) << cuda.err;
  Result automatic = tilewright({"run", "spec.yaml", "--seqlen-q", "16"});
  EXPECT_EQ(automatic.code, 0) << automatic.err;
  EXPECT_TRUE(contains(automatic.out, "simulator")) << automatic.out;
}

TEST_F(Run, RunsWithoutAnyPlaceForACache) {
  environment.erase("TILEWRIGHT_CACHE_DIR");
  write("spec.yaml", "head_dim: 32\n");
  Result result = run({"spec.yaml", "--seqlen-q", "16"});
  EXPECT_EQ(result.code, 0) << result.err;
}

}  // namespace
}  // namespace tilewright::cli_test
