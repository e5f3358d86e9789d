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

// Tiles of its own: one kernel for all lengths, whatever the rules would choose.
constexpr const char* one_kernel = "head_dim: 32\nblocks: {m: 64, n: 64}\n";

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
  write("spec.yaml", one_kernel + std::string("name: small\n"));
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
  write("spec.yaml", one_kernel);
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
  write("good.yaml", one_kernel);
  Result result =
      tilewright({"compile", "decode.yaml", "missing.yaml", "good.yaml", "--target", "sm_80", "--json"});
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.json().size(), 1u);
  EXPECT_TRUE(contains(result.err, "`pass: decode` has no kernel yet")) << result.err;
  EXPECT_TRUE(contains(result.err, "missing.yaml"));
}

/// An NVRTC that compiles nothing and says what a test wants it to say.
class FakeCompiler : public CommandTest {
 protected:
  FakeCompiler() {
    environment["TILEWRIGHT_NVRTC"] = TILEWRIGHT_BINARY_DIR "/fakes/fake_nvrtc.so";
    environment["FAKE_NVRTC_LOG"] = (folder / "log.txt").string();
    write("spec.yaml", one_kernel);
  }
};

TEST_F(FakeCompiler, SpillsAndNotesAreFailuresOnlyWhenStrict) {
  const std::string registers = "ptxas info    : Used 255 registers, used 1 barriers\n";
  struct {
    const char* log;
    const char* defect;  // null: none
  } cases[] = {
      {"    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n", nullptr},
      {"    8 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n",
       "spec for sm_90a: spills 20 bytes"},
      {"ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized\n",
       "(C7510)"},
  };
  for (const auto& log : cases) {
    write("log.txt", log.log + registers);
    std::vector<std::string> arguments = {"compile", "spec.yaml",  "--target",
                                          "sm_90a",  "--no-cache", "--json"};
    Result lenient = tilewright(arguments);
    EXPECT_EQ(lenient.code, 0) << lenient.err;
    ASSERT_EQ(lenient.json().size(), 1u);
    EXPECT_EQ(lenient.json()[0]["registers"], 255);
    EXPECT_EQ(lenient.json()[0]["defects"].size(), log.defect ? 1u : 0u);
    arguments.push_back("--strict");
    Result strict = tilewright(arguments);
    EXPECT_EQ(strict.code, log.defect ? 4 : 0) << strict.err;
    EXPECT_TRUE(!log.defect || contains(strict.err, log.defect)) << strict.err;
  }
}

TEST_F(FakeCompiler, AFailedCompileShowsLogCommandAndSource) {
  environment["FAKE_NVRTC_FAIL"] = "source";
  Result result = tilewright({"compile", "spec.yaml", "--target", "sm_90a"});
  EXPECT_EQ(result.code, 4);
  EXPECT_TRUE(contains(result.err, "identifier \"frobnicate\" is undefined")) << result.err;
  size_t place = result.err.find("\nsource: ");
  ASSERT_NE(place, std::string::npos) << result.err;
  std::string path = result.err.substr(place + 9);
  path.resize(path.find('\n'));
  EXPECT_TRUE(contains(contents(path), "attention_forward")) << path;
}

TEST_F(FakeCompiler, ATargetTheCompilerDoesNotKnowIsRemarkedOn) {
  Result result = tilewright({"compile", "spec.yaml", "--target", "sm_120a", "--json"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(contains(result.err, "spec for sm_120a: NVRTC 12.4 does not know sm_120a (12.8 does)"))
      << result.err;
}

TEST_F(Cache, NoCompilerIsAnEnvironmentErrorThatNamesThePlace) {
  environment["TILEWRIGHT_NVRTC"] = "/nonexistent/libnvrtc.so";
  write("spec.yaml", one_kernel);
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
