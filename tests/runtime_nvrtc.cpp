// NVRTC: found, loaded, asked, and its failures told. Most of it on a stand-in; one compile on the real one.
#include "runtime/nvrtc.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "codegen/error.h"
#include "runtime/build.h"
#include "runtime/nvrtc_library.h"
#include "tests/support/runtime_support.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using test::ScopedEnvironment;
using test::TemporaryDirectory;

const char* const fake_nvrtc = TILEWRIGHT_BINARY_DIR "/fakes/fake_nvrtc.so";

Source tiny_source() {
  return {.text = "extern \"C\" __global__ void tiny(float* p) { p[threadIdx.x] *= 2.0f; }\n",
          .file_name = "tiny.cu",
          .kernel_name = "tiny",
          .threads = 32,
          .shared_memory = 1024};
}

/// The real NVRTC; the test that asks is skipped where there is none.
Compiler* real_nvrtc() {
  try {
    return &nvrtc_compiler();
  } catch (const Error&) {
    return nullptr;
  }
}

TEST(Nvrtc, CompilesForEveryTarget) {
  Compiler* compiler = real_nvrtc();
  if (!compiler) GTEST_SKIP() << "no NVRTC";
  for (const Target& target : targets()) {
    CompiledImage compiled = compiler->compile(tiny_source(), target, false);
    EXPECT_GT(compiled.report.registers, 0) << target.name;
    EXPECT_EQ(compiled.report.spill_bytes, 0) << target.name;
    EXPECT_EQ(compiled.report.shared_memory, 1024);
    EXPECT_TRUE(compiled.report.compiler.starts_with("NVRTC 1")) << compiled.report.compiler;
    EXPECT_FALSE(compiled.is_ptx) << target.name;
    EXPECT_TRUE(
        compiled.image.starts_with("\x7f"
                                   "ELF"))
        << target.name;
    EXPECT_TRUE(compiled.report.notes.empty()) << compiled.report.notes[0];
  }
}

TEST(Nvrtc, PtxHasNoArchitectureSuffix) {
  Compiler* compiler = real_nvrtc();
  if (!compiler) GTEST_SKIP() << "no NVRTC";
  CompiledImage compiled = compiler->compile(tiny_source(), target_by_name("sm_90a"), true);
  EXPECT_TRUE(compiled.is_ptx);
  EXPECT_NE(compiled.image.find(".target sm_90\n"), std::string::npos) << compiled.image.substr(0, 300);
  EXPECT_NE(compiled.image.find(".entry tiny"), std::string::npos);
  EXPECT_NE(compiled.image.back(), '\0');
}

// Case I3, and a second compile of the same source by another thread.
TEST(Nvrtc, FailuresCarryLogCommandAndSource) {
  Compiler* compiler = real_nvrtc();
  if (!compiler) GTEST_SKIP() << "no NVRTC";
  TemporaryDirectory directory;
  KernelCache cache({.directory = directory / "cache"});
  Source source = tiny_source();
  source.text = "extern \"C\" __global__ void tiny() { __frobnicate(); }\n";
  try {
    build_kernel_with(compiler, "", cache, parse_spec("head_dim: 64", "spec"), {}, source,
                      target_by_name("sm_80"), false);
    FAIL() << "compiled";
  } catch (const CompileError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::compile);
    EXPECT_NE(error.log().find("identifier \"__frobnicate\" is undefined"), std::string::npos) << error.log();
    EXPECT_NE(error.command().find("--gpu-architecture=sm_80"), std::string::npos);
    EXPECT_EQ(test::read_text(error.source_path()), source.text);
    EXPECT_TRUE(error.source_path().starts_with((directory / "cache/failed").string()));
    for (const auto& part : {error.log(), error.command(), error.source_path()})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Nvrtc, FailedSourceIsKeptWithoutACacheToo) {
  KernelCache cache({.disk = false});
  const fs::path file = cache.keep_failed(tiny_source());
  EXPECT_EQ(test::read_text(file), tiny_source().text);
  fs::remove_all(file.parent_path());
}

TEST(Nvrtc, IdentityFollowsTheBytesOfTheLibrary) {
  TemporaryDirectory directory;
  fs::copy(fake_nvrtc, directory / "same.so");
  test::write_text(directory / "other.so", "no library, other bytes");
  const std::string identity = make_nvrtc_compiler(fake_nvrtc)->identity();
  EXPECT_EQ(make_nvrtc_compiler(directory / "same.so")->identity(), identity);
  EXPECT_NE(make_nvrtc_compiler(directory / "other.so")->identity(), identity);
  EXPECT_THROW(make_nvrtc_compiler(directory / "absent.so")->identity(), Error);
}

// Case I1: PTX for the newest architecture that the device can run.
TEST(Nvrtc, AnOlderReleaseMakesPtx) {
  const struct {
    const char *known, *target, *expected;
  } cases[] = {
      {"75,80,86,89,90", "sm_120a", "--gpu-architecture=compute_90"},
      {"75,80,86,89,90", "sm_100a", "--gpu-architecture=compute_90"},
      {"75,80,90,120", "sm_89", "--gpu-architecture=compute_80"},
  };
  for (const auto& [known, target, expected] : cases) {
    ScopedEnvironment architectures("FAKE_NVRTC_ARCHITECTURES", known);
    CompiledImage compiled =
        make_nvrtc_compiler(fake_nvrtc)->compile(tiny_source(), target_by_name(target), false);
    EXPECT_TRUE(compiled.is_ptx) << target;
    EXPECT_NE(compiled.image.find(expected), std::string::npos) << compiled.image;
    ASSERT_EQ(compiled.report.notes.size(), 1u);
    EXPECT_NE(compiled.report.notes[0].find("NVRTC 12.4 does not know " + std::string(target)),
              std::string::npos);
  }
}

TEST(Nvrtc, AReleaseThatCannotServeSaysWhichCan) {
  ScopedEnvironment architectures("FAKE_NVRTC_ARCHITECTURES", "100,120");
  std::string message = test::message_of<Error>(
      [] { make_nvrtc_compiler(fake_nvrtc)->compile(tiny_source(), target_by_name("sm_90a"), false); });
  EXPECT_NE(message.find("NVRTC 12.4"), std::string::npos) << message;
  EXPECT_NE(message.find("knows compute capabilities 10.0 to 12.0 and cannot serve sm_90a"),
            std::string::npos);
}

// Case I4.
TEST(Nvrtc, MissingBuiltinsAreOneError) {
  ScopedEnvironment fail("FAKE_NVRTC_FAIL", "builtins");
  try {
    make_nvrtc_compiler(fake_nvrtc)->compile(tiny_source(), target_by_name("sm_80"), false);
    FAIL() << "compiled";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::environment);
    const std::string message = error.what();
    for (const char* part :
         {fake_nvrtc, "version 12.4", "libnvrtc-builtins.so.12.4", "fakes/libnvrtc-builtins"})
      EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
}

// A wheel's NVRTC would not find them: it has no run path, and its folder is not on the loader's.
TEST(Nvrtc, BuiltinsBesideItAreLoaded) {
  TemporaryDirectory directory;
  const fs::path library = directory / "libnvrtc.so.12", builtins = directory / "libnvrtc-builtins.so.12.4";
  fs::copy_file(fake_nvrtc, library);
  fs::copy_file(TILEWRIGHT_BINARY_DIR "/fakes/fake_driver.so", builtins);
  load_nvrtc(library);
  EXPECT_NE(dlopen(builtins.c_str(), RTLD_LAZY | RTLD_NOLOAD), nullptr);
}

// Case I5.
TEST(Nvrtc, NotesOfASuccessAreKept) {
  TemporaryDirectory directory;
  test::write_text(directory / "log",
                   "ptxas info : (C7508) 'setmaxnreg' ignored\nptxas info : Used 33 registers\n");
  ScopedEnvironment log("FAKE_NVRTC_LOG", (directory / "log").string());
  CompiledImage compiled =
      make_nvrtc_compiler(fake_nvrtc)->compile(tiny_source(), target_by_name("sm_80"), false);
  EXPECT_EQ(compiled.report.registers, 33);
  ASSERT_EQ(compiled.report.notes.size(), 1u);
}

TEST(Nvrtc, TooOldOrNoLibrary) {
  TemporaryDirectory directory;
  test::write_text(directory / "text.so", "no library");
  EXPECT_NE(test::message_of<Error>([&] { load_nvrtc(directory / "text.so"); }).find("cannot load NVRTC"),
            std::string::npos);
  EXPECT_NE(test::message_of<Error>([&] {
              load_nvrtc(TILEWRIGHT_BINARY_DIR "/fakes/fake_driver.so");
            }).find("lacks nvrtcGetErrorString: it is no NVRTC of version 12 or newer"),
            std::string::npos);
  ScopedEnvironment version("FAKE_NVRTC_VERSION", "11.8");
  EXPECT_NE(
      test::message_of<Error>([&] { load_nvrtc(fake_nvrtc); }).find("NVRTC 11.8, 12.0 or newer is needed"),
      std::string::npos);
}

TEST(Nvrtc, TheVariableNamesAFileOrADirectory) {
  TemporaryDirectory directory;
  fs::create_symlink(fake_nvrtc, directory / "libnvrtc.so.12");
  {
    ScopedEnvironment variable("TILEWRIGHT_NVRTC", fake_nvrtc);
    EXPECT_EQ(find_nvrtc(), fake_nvrtc);
  }
  ScopedEnvironment variable("TILEWRIGHT_NVRTC", directory.path().string());
  EXPECT_EQ(find_nvrtc(), directory / "libnvrtc.so.12");
  ScopedEnvironment wrong("TILEWRIGHT_NVRTC", (directory / "nowhere").string());
  EXPECT_NE(test::message_of<Error>([] { find_nvrtc(); }).find("TILEWRIGHT_NVRTC is '"), std::string::npos);
}

TEST(Nvrtc, PlacesByTheirOrder) {
  ScopedEnvironment loader("LD_LIBRARY_PATH", "/first:/second"), toolkit("CUDA_HOME", "/toolkit");
  TemporaryDirectory directory;
  ScopedEnvironment environment("VIRTUAL_ENV", directory.path().string());
  for (const char* python : {"python3.9", "python3.11"}) fs::create_directories(directory / "lib" / python);
  const auto places = nvrtc_directories();
  auto position = [&](const fs::path& place) {
    return std::find(places.begin(), places.end(), place) - places.begin();
  };
  const fs::path wheel = directory / "lib/python3.11/site-packages/nvidia/cu13/lib";
  EXPECT_EQ(position("/first"), 0);
  EXPECT_EQ(position("/second"), 1);
  EXPECT_EQ(position("/toolkit/lib64"), 2);
  EXPECT_LT(position("/toolkit/lib64"), position("/usr/local/cuda/lib64"));
  EXPECT_LT(position("/usr/local/cuda/lib64"), position(wheel));
  EXPECT_LT(position(wheel), static_cast<ptrdiff_t>(places.size()));
}

// NVRTC that the process has loaded comes before LD_LIBRARY_PATH; so this runs before anything loads it.
TEST(Nvrtc, FoundInTheLoadersPath) {
  if (test::read_text("/proc/self/maps").find("libnvrtc.so") != std::string::npos)
    GTEST_SKIP() << "NVRTC is loaded";
  TemporaryDirectory directory;
  fs::create_symlink(fake_nvrtc, directory / "libnvrtc.so.12");
  ScopedEnvironment none("TILEWRIGHT_NVRTC", std::nullopt),
      path("LD_LIBRARY_PATH", directory.path().string());
  EXPECT_EQ(find_nvrtc(), directory / "libnvrtc.so.12");
}

}  // namespace
}  // namespace tilewright
