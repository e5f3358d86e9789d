// Help, and everything that one can type wrongly.
#include "cli_harness.h"

namespace tilewright::cli_test {
namespace {

class Usage : public CommandTest {};

TEST_F(Usage, EveryCommandHasHelp) {
  const std::vector<std::vector<std::string>> commands = {
      {},          {"run"},   {"emit"},   {"compile"},       {"explain"},       {"validate"},
      {"targets"}, {"cache"}, {"doctor"}, {"cache", "path"}, {"cache", "list"}, {"cache", "verify"},
  };
  for (std::vector<std::string> command : commands) {
    command.push_back("--help");
    Result result = tilewright(command);
    EXPECT_EQ(result.code, 0) << command[0];
    EXPECT_TRUE(contains(result.out, "Usage: ")) << result.out;
    EXPECT_TRUE(contains(result.out, "--help")) << result.out;
    EXPECT_EQ(result.err, "") << command[0];
  }
}

TEST_F(Usage, VersionIsOneLine) {
  Result result = tilewright({"--version"});
  EXPECT_EQ(result.code, 0);
  EXPECT_TRUE(result.out.starts_with("tilewright ")) << result.out;
}

struct Mistake {
  std::vector<std::string> arguments;
  std::string message;
};

TEST_F(Usage, MistakesAreExitCode2WithAMessageAndNoData) {
  write("spec.yaml", "head_dim: 64\n");
  const Mistake mistakes[] = {
      {{}, "subcommand is required"},
      {{"rnu", "spec.yaml"}, "unknown command 'rnu'; expected one of run, emit, "},
      {{"rnu", "spec.yaml"}, "nearest: run"},
      {{"run"}, "SPEC is required"},
      {{"emit"}, "SPEC is required"},
      {{"compile"}, "SPEC is required"},
      {{"run", "spec.yaml", "--sead", "1"}, "--sead"},
      {{"run", "spec.yaml", "--seed"}, "--seed"},
      {{"run", "spec.yaml", "--seed", "x"}, "--seed"},
      {{"run", "spec.yaml", "--seed", "-1"}, "--seed"},
      {{"run", "spec.yaml", "--device", "tpu"}, "--device"},
      {{"run", "spec.yaml", "--q", "q.npy"}, "--q requires"},
      {{"run", "spec.yaml", "--batch", "1", "--q", "q", "--k", "k", "--v", "v"}, "excludes"},
      {{"run", "spec.yaml", "--batch", "-1", "--device", "simulator"}, "expected 0 or more"},
      {{"run", "spec.yaml", "--seqlen-q", "99999999999", "--device", "simulator"}, "expected"},
      {{"run", "spec.yaml", "--no-check", "--expect", "x.npy"}, "expected one of the two"},
      {{"run", "spec.yaml", "--device", "simulator", "--target", "sm_81"}, "unknown target"},
      {{"emit", "spec.yaml", "--target", "sm_90"}, "nearest: sm_90a"},
      {{"emit", "spec.yaml", "--compiler", "llvm"}, "--compiler requires --ptx"},
      {{"emit", "spec.yaml", "--simulator", "--ptx"}, "--ptx excludes --simulator"},
      {{"compile", "spec.yaml", "--target", "sm_80,"}, "unknown target"},
      {{"validate", "spec.yaml", "--target", ""}, "unknown target"},
      {{"explain", "spec.yaml", "--target", "sm_80", "--seqlen-q", "-5"}, "expected 0 or more"},
      {{"cache"}, "subcommand is required"},
      {{"cache", "purge"}, "unknown command 'purge'; expected one of path, list, verify"},
      {{"targets", "extra"}, "extra"},
  };
  for (const Mistake& mistake : mistakes) {
    Result result = tilewright(mistake.arguments);
    std::string line;
    for (const std::string& word : mistake.arguments) line += word + " ";
    SCOPED_TRACE(line);
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(contains(result.err, mistake.message)) << result.err;
    EXPECT_TRUE(result.err.starts_with("tilewright: error: ")) << result.err;
  }
}

TEST_F(Usage, OutputThatCannotBeWrittenIsAFailure) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  Result result = tilewright({"targets"}, "/dev/full");
  EXPECT_EQ(result.code, 3);
  EXPECT_TRUE(contains(result.err, "the output could not be written")) << result.err;
}

}  // namespace
}  // namespace tilewright::cli_test
