// `tilewright tune` on a GPU: candidates checked and timed, a record written, and used. No figure is judged
// here.
#include "runtime/device.h"
#include "tests/cli_harness.h"

namespace tilewright::cli_test {
namespace {

TEST_F(CommandTest, TunesOnTheGpuAndUsesTheRecord) {
  std::string why;
  if (!cuda_device_available(&why)) GTEST_SKIP() << why;
  write("spec.yaml", "head_dim: 64\nmask: causal\nlse: true\n");
  environment["TILEWRIGHT_RECORDS_DIR"] = (folder / "records").string();
  const Result tuned = tilewright({"tune", "spec.yaml", "--bucket", "short", "--candidates", "6", "--device",
                                   "0", "--log", "log.jsonl", "--json"});
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  const nlohmann::json bucket = tuned.json()[0]["buckets"][0];
  EXPECT_GE(bucket["winner"].get<int>(), 0) << bucket["note"];
  EXPECT_GT(bucket["timed"].get<int>(), 1);
  for (const auto& candidate : bucket["candidates"])
    EXPECT_FALSE(contains(candidate.value("refused", ""), "wrong with")) << candidate;
  const nlohmann::json explained = tilewright({"explain", "spec.yaml", "--seqlen-q", "1024", "--batch", "16",
                                               "--heads", "16", "--no-compile", "--json"})
                                       .json();
  EXPECT_TRUE(contains(explained["schedule"]["from"], "record of ")) << explained["schedule"];
  EXPECT_EQ(tilewright({"run", "spec.yaml", "--seqlen-q", "300", "--heads", "64", "--batch", "2"}).code, 0);
  EXPECT_EQ(tilewright({"report", "records", "--log", "log.jsonl"}).code, 0);
}

}  // namespace
}  // namespace tilewright::cli_test
