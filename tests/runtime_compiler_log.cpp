#include "runtime/compiler_log.h"

#include <gtest/gtest.h>

namespace tilewright {
namespace {

TEST(CompilerLog, RegistersAndSpills) {
  CompileReport report;
  read_compiler_log(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'attention_forward' for 'sm_90a'\n"
      "ptxas info    : Function properties for attention_forward\n"
      "    32 bytes stack frame, 28 bytes spill stores, 36 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 1 barriers, 32 bytes cumulative stack size\n",
      report);
  EXPECT_EQ(report.registers, 168);
  EXPECT_EQ(report.spill_bytes, 64);
  EXPECT_TRUE(report.notes.empty());
}

// Case I5.
TEST(CompilerLog, AdviceAndWarningsAreKept) {
  CompileReport report;
  read_compiler_log(
      "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored to maintain minimum "
      "register\n"
      "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized\r\n"
      "kernel.cu(3): warning #550-D: variable \"x\" was set but never used\n"
      "ptxas info    : Used 40 registers",
      report);
  ASSERT_EQ(report.notes.size(), 3u);
  EXPECT_NE(report.notes[0].find("C7508"), std::string::npos);
  EXPECT_TRUE(report.notes[1].ends_with("serialized"));
  EXPECT_NE(report.notes[2].find("warning #550-D"), std::string::npos);
  EXPECT_EQ(report.registers, 40);
}

TEST(CompilerLog, OddTextIsNoTrouble) {
  CompileReport report;
  read_compiler_log("\n\n registers\n99999999999999 registers\n(C\nbytes spill stores", report);
  EXPECT_EQ(report.spill_bytes, 0);
  EXPECT_TRUE(report.notes.empty());
}

}  // namespace
}  // namespace tilewright
