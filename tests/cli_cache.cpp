// tilewright compile, cache and doctor.
#include "cli_harness.h"

namespace tilewright::cli_test {
namespace {

class Cache : public CommandTest {
 protected:
  std::vector<std::filesystem::path> entries() {
    std::vector<std::filesystem::path> files;
    for (const auto& item : tilewright({"cache", "list", "--json"}).json()) {
      files.push_back(item["file"].get<std::string>());
    }
    return files;
  }
};

TEST_F(Cache, PathFollowsTheEnvironment) {
  EXPECT_EQ(tilewright({"cache", "path"}).out, (folder / "cache").string() + "\n");
  environment.erase("TILEWRIGHT_CACHE_DIR");
  environment["XDG_CACHE_HOME"] = "/x";
  environment["HOME"] = "/h";
  EXPECT_EQ(tilewright({"cache", "path"}).out, "/x/tilewright\n");
  environment.erase("XDG_CACHE_HOME");
  EXPECT_EQ(tilewright({"cache", "path"}).out, "/h/.cache/tilewright\n");
  environment.erase("HOME");
  Result result = tilewright({"cache", "path"});
  EXPECT_EQ(result.code, 3);
  EXPECT_TRUE(contains(result.err, "TILEWRIGHT_CACHE_DIR")) << result.err;
}

TEST_F(Cache, LookingMakesNothing) {
  EXPECT_EQ(tilewright({"cache", "list", "--json"}).json().size(), 0u);
  EXPECT_EQ(tilewright({"cache", "verify"}).out, "0 good, 0 bad\n");
  tilewright({"doctor"});
  EXPECT_FALSE(std::filesystem::exists(folder / "cache"));
}

TEST_F(Cache, CompileFillsItAndFindsItAgain) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC on this machine";
  write("spec.yaml", "head_dim: 32\nname: small\n");
  const std::vector<std::string> arguments = {"compile", "spec.yaml", "--target", "sm_80,sm_90a", "--json"};
  Result first = tilewright(arguments);
  EXPECT_EQ(first.code, 0) << first.err;
  nlohmann::json list = first.json();
  ASSERT_EQ(list.size(), 2u);
  for (int i : {0, 1}) {
    EXPECT_EQ(list[i]["spec"], "small");
    EXPECT_EQ(list[i]["target"], i == 0 ? "sm_80" : "sm_90a");
    EXPECT_EQ(list[i]["from"], "compiled");
    EXPECT_GT(list[i]["registers"], 0);
    EXPECT_GT(list[i]["milliseconds"], 0);
  }
  nlohmann::json again = tilewright(arguments).json();
  for (int i : {0, 1}) {
    EXPECT_EQ(again[i]["from"], "disk");
    EXPECT_EQ(again[i]["registers"], list[i]["registers"]);
    EXPECT_EQ(again[i]["milliseconds"], list[i]["milliseconds"]);
  }
  EXPECT_EQ(entries().size(), 2u);
  Result listed = tilewright({"cache", "list"});
  EXPECT_TRUE(contains(listed.out, "sm_90a")) << listed.out;
  EXPECT_TRUE(contains(listed.out, "head_dim: 32"));
  EXPECT_EQ(tilewright({"cache", "verify"}).out, "2 good, 0 bad\n");

  Result private_compile = tilewright({"compile", "spec.yaml", "--target", "sm_80", "--no-cache", "--json"});
  EXPECT_EQ(private_compile.json()[0]["from"], "compiled");
}

TEST_F(Cache, VerifyFindsADamagedEntryAndCompileRebuildsIt) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC on this machine";
  write("spec.yaml", "head_dim: 32\n");
  const std::vector<std::string> arguments = {"compile", "spec.yaml", "--target", "sm_80", "--json"};
  tilewright(arguments);
  ASSERT_EQ(entries().size(), 1u);
  const std::filesystem::path file = entries()[0];
  std::string bytes = contents(file);
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
  Result verified = tilewright({"cache", "verify", "--json"});
  EXPECT_EQ(verified.code, 1);
  EXPECT_EQ(verified.json()["bad"], 1);
  EXPECT_EQ(verified.json()["problems"][0]["file"], file.string());
  Result listed = tilewright({"cache", "list"});
  EXPECT_EQ(listed.code, 0);
  EXPECT_TRUE(contains(listed.err, "is bad: ")) << listed.err;
  EXPECT_EQ(tilewright(arguments).json()[0]["from"], "compiled");
  EXPECT_EQ(tilewright({"cache", "verify"}).code, 0);
}

TEST_F(Cache, CompileGoesOnAfterAFailure) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC on this machine";
  write("decode.yaml", "head_dim: 32\npass: decode\n");
  write("good.yaml", "head_dim: 32\n");
  Result result =
      tilewright({"compile", "decode.yaml", "missing.yaml", "good.yaml", "--target", "sm_80", "--json"});
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.json().size(), 1u);
  EXPECT_TRUE(contains(result.err, "`pass: decode` has no kernel yet")) << result.err;
  EXPECT_TRUE(contains(result.err, "missing.yaml"));
}

TEST_F(Cache, SpillsAreFailuresOnlyWhenStrict) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC on this machine";
  // Output, scores and Q fragments alone take 208 of 255 registers.
  write("spilling.yaml",
        "head_dim: 64\nblocks: {m: 128, n: 112, warps: 4, stages: 2, query_in_registers: true}\n");
  write("fine.yaml", "head_dim: 32\n");
  Result lenient = tilewright({"compile", "spilling.yaml", "--target", "sm_90a", "--json"});
  EXPECT_EQ(lenient.code, 0) << lenient.err;
  EXPECT_GT(lenient.json()[0]["spill_bytes"], 0);
  Result strict = tilewright({"compile", "spilling.yaml", "fine.yaml", "--target", "sm_90a", "--strict"});
  EXPECT_EQ(strict.code, 4);
  EXPECT_TRUE(contains(strict.err, "spilling for sm_90a: spills ")) << strict.err;
  EXPECT_EQ(tilewright({"compile", "fine.yaml", "--target", "sm_90a", "--strict"}).code, 0);
}

TEST_F(Cache, NoCompilerIsAnEnvironmentErrorThatNamesThePlace) {
  environment["TILEWRIGHT_NVRTC"] = "/nonexistent/libnvrtc.so";
  write("spec.yaml", "head_dim: 32\n");
  Result result = tilewright({"compile", "spec.yaml", "--target", "sm_80"});
  EXPECT_EQ(result.code, 3);
  EXPECT_TRUE(contains(result.err, "/nonexistent/libnvrtc.so")) << result.err;
}

class Doctor : public CommandTest {};

TEST_F(Doctor, ListsPartsAndVariables) {
  environment["TILEWRIGHT_LOCK_SECONDS"] = "17";
  Result result = tilewright({"doctor", "--json"});
  nlohmann::json json = result.json();
  EXPECT_EQ(result.code, json["gpu"] == true || json["simulator"] == true ? 0 : 3);
  std::vector<std::string> names;
  for (const auto& part : json["parts"]) names.push_back(part["name"]);
  for (const char* name : {"driver", "NVRTC", "LLVM", "C++", "cache"}) {
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
  bool found = false;
  for (const auto& variable : json["environment"]) {
    found = found || (variable["name"] == "TILEWRIGHT_LOCK_SECONDS" && variable["value"] == "17");
  }
  EXPECT_TRUE(found);
  Result text = tilewright({"doctor"});
  EXPECT_TRUE(contains(text.out, json["conclusion"].get<std::string>())) << text.out;
}

TEST_F(Doctor, SaysWhenNothingCanRunKernels) {
  for (const char* name :
       {"TILEWRIGHT_DRIVER", "TILEWRIGHT_LLVM_PLUGIN", "TILEWRIGHT_CXX", "TILEWRIGHT_NVRTC"}) {
    environment[name] = std::string("/nonexistent/") + name;
  }
  Result result = tilewright({"doctor"});
  EXPECT_EQ(result.code, 3);
  EXPECT_TRUE(contains(result.out, "nothing here can run kernels")) << result.out;
  for (const char* name :
       {"TILEWRIGHT_DRIVER", "TILEWRIGHT_LLVM_PLUGIN", "TILEWRIGHT_CXX", "TILEWRIGHT_NVRTC"}) {
    EXPECT_TRUE(contains(result.out, std::string("/nonexistent/") + name));
  }
}

}  // namespace
}  // namespace tilewright::cli_test
