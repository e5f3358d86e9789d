// The LLVM plugin: how it is found, what it compiles for GPUs and for the host, what it says when it cannot.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>

#include "codegen/emit.h"
#include "runtime/llvm_plugin.h"
#include "simulator/host_kernel.h"
#include "simulator/scratch_directory.h"

namespace tilewright {
namespace {

class Llvm : public testing::Test {
 protected:
  void SetUp() override {
#ifndef TILEWRIGHT_HAS_LLVM_PLUGIN
    GTEST_SKIP() << "built without the LLVM plugin";
#endif
    std::string why;
    plugin_ = llvm_plugin(&why);
    ASSERT_NE(plugin_, nullptr) << why;
  }
  LlvmPlugin* plugin_ = nullptr;
};

using LlvmPtx = Llvm;
using LlvmHost = Llvm;

Source source_of(std::string text, std::string kernel = "kernel") {
  Source source;
  source.text = std::move(text);
  source.file_name = "test.cu";
  source.kernel_name = std::move(kernel);
  source.threads = 32;
  return source;
}

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void remove_kept(const CompileError& error) {
  std::filesystem::remove_all(std::filesystem::path(error.source_path()).parent_path());
}

// --- PTX

TEST_F(LlvmPtx, EveryTargetThatLlvmKnows) {
  const AttentionSpec spec = parse_spec("head_dim: 64\ndtype: bf16\nmask: causal\nlse: true\n", "test.yaml");
  struct Expected {
    const char* target;
    const char* version;  // the lowest that has the target: drivers refuse PTX newer than themselves
  };
  for (const Expected& expected :
       {Expected{"sm_80", "7.0"}, {"sm_86", "7.1"}, {"sm_87", "7.4"}, {"sm_89", "7.8"}, {"sm_90a", "8.0"}}) {
    const Target& target = target_by_name(expected.target);
    const Source source = emit(spec, choose_schedule(spec, target), target, Backend::device);
    const CompiledImage image = plugin_->device_compiler().compile(source, target, true);
    EXPECT_TRUE(image.is_ptx);
    EXPECT_NE(image.image.find(std::string(".version ") + expected.version + "\n"), std::string::npos);
    EXPECT_NE(image.image.find(std::string(".target ") + expected.target + "\n"), std::string::npos);
    EXPECT_NE(image.image.find(".entry " + source.kernel_name), std::string::npos);
    EXPECT_NE(image.image.find(".maxntid " + std::to_string(source.threads)), std::string::npos);
    const char* product = target.wgmma ? "wgmma.mma_async.sync.aligned.m64n128k16" : "mma.sync.aligned.m16n8k16";
    EXPECT_NE(image.image.find(product), std::string::npos);
    // Accumulators and parameters in registers and constants, nothing on a local stack.
    EXPECT_EQ(image.image.find(".local"), std::string::npos) << expected.target;
    EXPECT_EQ(image.report.compiler, "clang " + plugin_->version());
    EXPECT_NE(image.report.command.find(std::string("-target-cpu ") + expected.target), std::string::npos);
    EXPECT_EQ(image.report.shared_memory, source.shared_memory);
    EXPECT_GT(image.report.milliseconds, 0);
    EXPECT_TRUE(image.report.notes.empty()) << image.report.notes[0];
    EXPECT_EQ(image.image, plugin_->device_compiler().compile(source, target, true).image)
        << "not deterministic";
  }
}

TEST_F(LlvmPtx, ATargetThatLlvmDoesNotKnow) {
  for (const char* name : {"sm_100a", "sm_120a"}) {
    try {
      plugin_->device_compiler().compile(source_of(""), target_by_name(name), true);
      ADD_FAILURE() << "compiled for " << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::environment);
      const std::string message = error.what();
      EXPECT_NE(message.find("LLVM " + plugin_->version()), std::string::npos) << message;
      EXPECT_NE(message.find(name), std::string::npos) << message;
      EXPECT_NE(message.find("the newest it compiles for is sm_90a"), std::string::npos) << message;
    }
  }
}

TEST_F(LlvmPtx, RefusedSourceIsKeptAndNamed) {
  const Source source = source_of("__attribute__((global)) void kernel() { no_such_intrinsic(1); }\n");
  try {
    plugin_->device_compiler().compile(source, target_by_name("sm_80"), true);
    ADD_FAILURE() << "compiled";
  } catch (const CompileError& error) {
    EXPECT_NE(error.log().find("test.cu:1:"), std::string::npos) << error.log();
    EXPECT_NE(error.log().find("no_such_intrinsic"), std::string::npos) << error.log();
    EXPECT_NE(std::string(error.what()).find(error.source_path()), std::string::npos);
    EXPECT_NE(error.command().find("-target-cpu sm_80"), std::string::npos);
    EXPECT_EQ(read(error.source_path()), source.text);
    remove_kept(error);
  }
}

TEST_F(LlvmPtx, WarningsBecomeNotes) {
  const CompiledImage image = plugin_->device_compiler().compile(
      source_of("#warning mind the gap\n__attribute__((global)) void kernel() {}\n"), target_by_name("sm_80"),
      true);
  ASSERT_EQ(image.report.notes.size(), 1u);
  EXPECT_NE(image.report.notes[0].find("mind the gap"), std::string::npos);
}

// An instruction that takes a parameter's address (a tensor map's, for example) must get the parameter's own,
// not that of a copy in local memory.
TEST_F(LlvmPtx, ParametersAreNotCopied) {
  const CompiledImage image = plugin_->device_compiler().compile(
      source_of("struct Parameters { int map[32]; };\n"
                "extern \"C\" __attribute__((global)) void kernel(const Parameters p) {\n"
                "  asm volatile(\"prefetch.tensormap [%0];\" :: \"l\"(p.map) : \"memory\");\n"
                "}\n"),
      target_by_name("sm_90a"), true);
  EXPECT_EQ(image.image.find(".local"), std::string::npos) << image.image;
  EXPECT_NE(image.image.find("cvta.param"), std::string::npos) << image.image;
}

TEST_F(LlvmPtx, ThreadsCompileAtOnce) {
  const Source source =
      source_of("extern \"C\" __attribute__((global)) void kernel(float* p) { *p += 1; }\n");
  std::string images[4];
  std::vector<std::thread> threads;
  for (std::string& image : images) {
    threads.emplace_back(
        [&] { image = plugin_->device_compiler().compile(source, target_by_name("sm_80"), true).image; });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& image : images) {
    EXPECT_FALSE(image.empty());
    EXPECT_EQ(image, images[0]);
  }
}

// --- host code

TEST_F(LlvmHost, RunsWhatItCompiled) {
  const auto code =
      plugin_->compile_host(source_of("struct Big { int values[100]; };\n"
                                      "static Big copy(const Big& big) { Big other = big; return other; }\n"
                                      "extern \"C\" int kernel_thunk(int i) { Big big = {}; big.values[i] = "
                                      "7; return copy(big).values[i]; }\n"));
  const auto thunk = reinterpret_cast<int (*)(int)>(code->symbol("kernel_thunk"));
  ASSERT_NE(thunk, nullptr);
  EXPECT_EQ(thunk(31), 7);
  EXPECT_EQ(code->symbol("no_such_function"), nullptr);
}

TEST_F(LlvmHost, KernelsOfOneNameLiveSideBySide) {
  const auto first = plugin_->compile_host(source_of("extern \"C\" int kernel_thunk() { return 1; }\n"));
  auto second = plugin_->compile_host(source_of("extern \"C\" int kernel_thunk() { return 2; }\n"));
  const auto call = [](HostCode& code) { return reinterpret_cast<int (*)()>(code.symbol("kernel_thunk"))(); };
  EXPECT_EQ(call(*first), 1);
  EXPECT_EQ(call(*second), 2);
  second.reset();
  EXPECT_EQ(call(*first), 1);
}

TEST_F(LlvmHost, Errors) {
  const auto expect_refused = [&](const char* text, const char* message, bool in_log) {
    try {
      plugin_->compile_host(source_of(text));
      ADD_FAILURE() << "compiled: " << text;
    } catch (const CompileError& error) {
      const std::string where = in_log ? error.log() : error.what();
      EXPECT_NE(where.find(message), std::string::npos) << where;
      EXPECT_EQ(read(error.source_path()), text);
      remove_kept(error);
    }
  };
  expect_refused("int f() { return nonsense; }\n", "undeclared identifier 'nonsense'", true);
  expect_refused("extern \"C\" int missing(); extern \"C\" int kernel_thunk() { return missing(); }\n",
                 "missing", false);
  expect_refused("extern \"C\" int another_name() { return 1; }\n", "kernel_thunk", false);
}

// --- the system compiler and the choice between both

constexpr const char* complete_kernel =
    "extern \"C\" void kernel_thunk(const void*) {}\n"
    "extern \"C\" void kernel_bind(const void*) {}\n";

TEST(HostKernel, SystemCompilerKeepsTheSourceWhileTheCodeLives) {
  std::string path;
  {
    const HostKernel kernel = build_host_kernel(source_of(complete_kernel), SimulatorCompiler::system);
    path = kernel.source_path;
    EXPECT_EQ(read(path), complete_kernel);
    EXPECT_NE(kernel.thunk, nullptr);
    EXPECT_NE(kernel.bind, nullptr);
    EXPECT_NE(kernel.compiler.find("system C++ compiler ("), std::string::npos);
    EXPECT_NE(kernel.command.find("-g -shared -fPIC"), std::string::npos);
    EXPECT_GT(kernel.milliseconds, 0);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(HostKernel, SystemCompilerErrors) {
  try {
    build_host_kernel(source_of("int f() { return nonsense; }\n"), SimulatorCompiler::system);
    ADD_FAILURE() << "compiled";
  } catch (const CompileError& error) {
    EXPECT_NE(error.log().find("nonsense"), std::string::npos) << error.log();
    EXPECT_NE(error.command().find("-std=c++20"), std::string::npos);
    EXPECT_TRUE(std::filesystem::exists(error.source_path()));
    remove_kept(error);
  }
}

TEST(HostKernel, CodeWithoutEntryPoints) {
  try {
    build_host_kernel(source_of("extern \"C\" void kernel_thunk(const void*) {}\n"),
                      SimulatorCompiler::automatic);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::internal);
    EXPECT_NE(std::string(error.what()).find("kernel_bind"), std::string::npos);
  }
}

TEST_F(Llvm, IsTheAutomaticChoice) {
  const HostKernel kernel = build_host_kernel(source_of(complete_kernel), SimulatorCompiler::automatic);
  EXPECT_EQ(kernel.compiler, "clang " + plugin_->version());
  EXPECT_EQ(kernel.source_path, "");
}

// In processes of their own: the plugin is looked for once, and the environment belongs to all tests.
class InChildProcess : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};
using LlvmLoaderDeathTest = InChildProcess;
using SystemCompilerDeathTest = InChildProcess;

[[noreturn]] void report_and_exit(const std::function<void()>& action) {
  try {
    action();
    std::exit(0);
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
    std::exit(10 + static_cast<int>(error.kind()));
  }
}

constexpr int environment_exit = 10 + static_cast<int>(ErrorKind::environment);

TEST_F(LlvmLoaderDeathTest, AMistypedPathIsNotReplacedByAnother) {
  EXPECT_EXIT(report_and_exit([] {
                setenv("TILEWRIGHT_LLVM_PLUGIN", "/nowhere/plugin.so", 1);
                build_host_kernel(source_of(complete_kernel), SimulatorCompiler::llvm);
              }),
              testing::ExitedWithCode(environment_exit), "/nowhere/plugin.so: no such file");
}

TEST_F(LlvmLoaderDeathTest, AFileThatIsNoPlugin) {
  EXPECT_EXIT(report_and_exit([] {
                setenv("TILEWRIGHT_LLVM_PLUGIN", "libm.so.6", 1);
                build_host_kernel(source_of(complete_kernel), SimulatorCompiler::llvm);
              }),
              testing::ExitedWithCode(environment_exit), "libm.so.6: not a Tilewright plugin");
}

TEST_F(LlvmLoaderDeathTest, WithoutThePluginTheSystemCompilerServes) {
  EXPECT_EXIT(report_and_exit([] {
                setenv("TILEWRIGHT_LLVM_PLUGIN", "/nowhere/plugin.so", 1);
                const HostKernel kernel =
                    build_host_kernel(source_of(complete_kernel), SimulatorCompiler::automatic);
                std::fputs(kernel.compiler.c_str(), stderr);
              }),
              testing::ExitedWithCode(0), "system C\\+\\+ compiler");
}

TEST_F(SystemCompilerDeathTest, LeavesNothingBehindWhenAKernelIsNeverFreed) {
  ScratchDirectory directory;
  setenv("TMPDIR", directory.path().c_str(), 1);  // for the child
  EXPECT_EXIT(report_and_exit([] {
                new HostKernel(build_host_kernel(source_of(complete_kernel), SimulatorCompiler::system));
              }),
              testing::ExitedWithCode(0), "");
  unsetenv("TMPDIR");
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST_F(SystemCompilerDeathTest, NoSuchCompiler) {
  EXPECT_EXIT(report_and_exit([] {
                setenv("TILEWRIGHT_CXX", "no-such-compiler -O2", 1);
                build_host_kernel(source_of(complete_kernel), SimulatorCompiler::system);
              }),
              testing::ExitedWithCode(environment_exit),
              "cannot start the system C\\+\\+ compiler \"no-such-compiler\"");
}

TEST_F(SystemCompilerDeathTest, NoTemporaryDirectory) {
  EXPECT_EXIT(report_and_exit([] {
                setenv("TMPDIR", "/proc", 1);
                build_host_kernel(source_of(complete_kernel), SimulatorCompiler::system);
              }),
              testing::ExitedWithCode(environment_exit),
              "cannot make a temporary directory /proc/.*set TMPDIR");
}

}  // namespace
}  // namespace tilewright
