// tilewright precompile and bundle, with a compiler that compiles nothing.
#include <fmt/format.h>

#include "cli_harness.h"

namespace tilewright::cli_test {
namespace {

class Bundles : public CommandTest {
 protected:
  Bundles() {
    environment["TILEWRIGHT_NVRTC"] = TILEWRIGHT_BINARY_DIR "/fakes/fake_nvrtc.so";
    // Blocks of their own: one kernel a target, whatever the launch.
    write("small.yaml", "head_dim: 32\nname: small\nblocks: {n: 64}\n");
    write("other.yaml", "head_dim: 72\nmask: causal\n");
    write("same.yaml", "# the same kernel\nhead_dim: 32\nblocks: {n: 64}\n");
  }
  Result precompile(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "precompile");
    return tilewright(arguments);
  }
};

TEST_F(Bundles, EveryKernelOnceWhateverTheOrderAndTheProcesses) {
  Result first = precompile({"small.yaml", "other.yaml", "same.yaml", "--target", "sm_80,sm_90a", "-o",
                             "a.twb", "--jobs", "1", "--json"});
  ASSERT_EQ(first.code, 0) << first.err;
  nlohmann::json json = first.json();
  const int kernels = json["kernels"];
  EXPECT_GT(kernels, 4) << "two specs on two targets, and several variants of one of them";
  EXPECT_EQ(json["compiled"], kernels);
  EXPECT_EQ(json["specs"], 3);
  EXPECT_EQ(json["bytes"], contents(folder / "a.twb").size());
  environment["TILEWRIGHT_CACHE_DIR"] = (folder / "other cache").string();
  Result second = precompile(
      {"other.yaml", "small.yaml", "--target", "sm_90a,sm_80", "-o", "b.twb", "--jobs", "3", "--json"});
  EXPECT_EQ(second.json()["compiled"], kernels);
  EXPECT_TRUE(contents(folder / "a.twb") == contents(folder / "b.twb"));
  Result third = precompile({"other.yaml", "small.yaml", "--target", "sm_90a,sm_80", "-o", "b.twb"});
  EXPECT_TRUE(contains(third.out, fmt::format("b.twb: {} kernels of 2 specs, ", kernels))) << third.out;
  EXPECT_TRUE(contains(third.out, fmt::format("0 compiled, {} from the cache", kernels))) << third.out;
}

TEST_F(Bundles, ListVerifyCovers) {
  precompile({"small.yaml", "--target", "sm_80,sm_90a", "--with-ptx"});
  nlohmann::json list = tilewright({"bundle", "list", "kernels.twb", "--json"}).json();
  ASSERT_EQ(list["kernels"].size(), 3u);
  int ptx = 0;
  for (const auto& kernel : list["kernels"]) {
    ptx += kernel["ptx"] == true;
    EXPECT_TRUE(contains(kernel["spec"], "head_dim: 32"));
    EXPECT_FALSE(contains(kernel["spec"], "small"));
  }
  EXPECT_EQ(ptx, 1);
  EXPECT_TRUE(contains(tilewright({"bundle", "list", "kernels.twb"}).out, "sm_86 (PTX)"));
  EXPECT_EQ(tilewright({"bundle", "verify", "kernels.twb"}).out, "3 good, 0 bad\n");

  Result covers = tilewright({"bundle", "covers", "kernels.twb", "same.yaml"});
  EXPECT_EQ(covers.code, 0) << covers.out;
  EXPECT_EQ(covers.out, "2 kernels found, 0 missing\n");
  covers = tilewright({"bundle", "covers", "kernels.twb", "small.yaml", "other.yaml", "--target", "sm_90a"});
  EXPECT_EQ(covers.code, 1);
  EXPECT_TRUE(contains(covers.out, "missing: other for sm_90a (sm90, m 192")) << covers.out;
  EXPECT_TRUE(contains(covers.out, "1 kernels found, 2 missing\n")) << covers.out;
}

TEST_F(Bundles, DamageIsFound) {
  precompile({"small.yaml", "--target", "sm_80"});
  const std::string good = contents(folder / "kernels.twb");
  std::string bytes = good;
  bytes[bytes.size() - 50] ^= 1;
  write("kernels.twb", bytes);
  Result result = tilewright({"bundle", "verify", "kernels.twb", "--json"});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.json()["good"], 0);
  EXPECT_TRUE(contains(result.json()["problems"][0], "entry 0")) << result.out;
  write("kernels.twb", good.substr(0, 100));
  EXPECT_EQ(tilewright({"bundle", "verify", "kernels.twb"}).code, 1);
  for (const char* command : {"list", "covers"}) {
    std::vector<std::string> arguments = {"bundle", command, "kernels.twb"};
    if (command == std::string("covers")) arguments.push_back("small.yaml");
    result = tilewright(arguments);
    EXPECT_EQ(result.code, 3);
    EXPECT_TRUE(contains(result.err, "the bundle kernels.twb cannot be used: ")) << result.err;
  }
}

TEST_F(Bundles, AFailureLeavesNoFileUnlessAskedTo) {
  write("unserved.yaml", "head_dim: 32\npass: decode\n");
  std::vector<std::string> arguments = {"unserved.yaml", "missing.yaml", "small.yaml", "--target", "sm_80"};
  Result result = precompile(arguments);
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(contains(result.err, "`pass: decode` has no kernel yet")) << result.err;
  EXPECT_TRUE(contains(result.err, "missing.yaml")) << result.err;
  EXPECT_TRUE(contains(result.err, "kernels.twb is not written")) << result.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "kernels.twb"));
  arguments.push_back("--partial");
  EXPECT_EQ(precompile(arguments).code, 0);
  EXPECT_EQ(tilewright({"bundle", "verify", "kernels.twb"}).out, "1 good, 0 bad\n");
  environment["FAKE_NVRTC_FAIL"] = "source";
  result = precompile({"other.yaml", "--target", "sm_80", "-o", "none.twb"});
  EXPECT_EQ(result.code, 4);
  EXPECT_TRUE(contains(result.err, "identifier \"frobnicate\" is undefined")) << result.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "none.twb"));
}

// With the real compiler: the bytes do not depend on the run.
TEST_F(Bundles, RealKernelsAreTheSameEveryTime) {
  environment.erase("TILEWRIGHT_NVRTC");
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC on this machine";
  std::string bytes[2];
  for (int run : {0, 1}) {
    environment["TILEWRIGHT_CACHE_DIR"] = (folder / ("cache " + std::to_string(run))).string();
    Result made = precompile({"small.yaml", "--target", "sm_80,sm_90a", "--with-ptx"});
    ASSERT_EQ(made.code, 0) << made.err;
    bytes[run] = contents(folder / "kernels.twb");
  }
  EXPECT_TRUE(bytes[0] == bytes[1]);
  environment["TILEWRIGHT_NVRTC"] = "/nonexistent/libnvrtc.so";
  environment["TILEWRIGHT_CACHE_DIR"] = (folder / "empty cache").string();
  environment["TILEWRIGHT_BUNDLES"] = "kernels.twb";
  nlohmann::json compiled = tilewright({"compile", "small.yaml", "--target", "sm_90a", "--json"}).json();
  EXPECT_EQ(compiled[0]["from"], "bundle");
  EXPECT_GT(compiled[0]["registers"], 0);
}

}  // namespace
}  // namespace tilewright::cli_test
