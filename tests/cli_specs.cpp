// Commands that read specs and calculate: validate, targets, emit, explain.
#include "cli_harness.h"

namespace tilewright::cli_test {
namespace {

class Specs : public CommandTest {};

TEST_F(Specs, ValidatePrintsTheCanonicalFormAndTheTargets) {
  write("spec.yaml", "gqa_ratio: 4\nname: mine\nhead_dim: 128\n");
  Result result = tilewright({"validate", "spec.yaml", "--target", "sm_80,sm_90a"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(result.out.starts_with("spec.yaml: mine\n  head_dim: 128\n  gqa_ratio: 4\n  sm_80    sm80, m "))
      << result.out;
  EXPECT_TRUE(contains(result.out, "\n  sm_90a   sm90, m "));
}

TEST_F(Specs, ValidateAcceptsEverySpecThatShips) {
  std::vector<std::string> arguments = {"validate", "--json"};
  for (const auto& entry : std::filesystem::directory_iterator(TILEWRIGHT_SOURCE_DIR "/specs")) {
    if (entry.path().extension() == ".yaml") arguments.push_back(entry.path().string());
  }
  Result result = tilewright(arguments);
  EXPECT_EQ(result.code, 0) << result.err;
  nlohmann::json list = result.json();
  EXPECT_EQ(list.size(), arguments.size() - 2);
  for (const auto& spec : list) {
    for (const auto& target : spec["targets"]) EXPECT_TRUE(target["supported"]) << spec["name"] << target;
  }
}

TEST_F(Specs, ValidateGoesOnAfterABadFile) {
  write("bad.yaml", "head_dim: 100\n");
  write("good.yaml", "head_dim: 64\n");
  Result result = tilewright({"validate", "bad.yaml", "missing.yaml", "good.yaml", "--json"});
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(contains(result.err,
                       "bad.yaml:1:11: head_dim: 100 is not valid; expected a multiple of 8 from 8 to 576"));
  EXPECT_TRUE(contains(result.err, "missing.yaml"));
  nlohmann::json list = result.json();
  ASSERT_EQ(list.size(), 3u);
  EXPECT_TRUE(list[0].contains("error"));
  EXPECT_TRUE(list[1].contains("error"));
  EXPECT_EQ(list[2]["canonical_form"], "head_dim: 64\n");
}

TEST_F(Specs, ValidateGivesTheReasonsOfSpecsWithoutAKernel) {
  write("spec.yaml", "head_dim: 64\npass: backward\nmask: {blocks: {m: 64, n: 64}}\n");
  Result result = tilewright({"validate", "spec.yaml"});
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(contains(
      result.out,
      "refused: no kernel for this spec on sm_80: `mask.blocks` has no backward kernel yet; forward has"))
      << result.out;
}

TEST_F(Specs, FilesThatAreNoSpecs) {
  write("empty.yaml", "");
  write("binary.yaml", std::string("\0\1\2", 3));
  write("large.yaml", std::string(100000, ' '));
  struct {
    const char* file;
    int code;
    const char* message;
  } cases[] = {
      {"missing.yaml", 3, "missing.yaml: No such file or directory"},
      {"/", 3, "/: Is a directory"},
      {"empty.yaml", 2, "empty.yaml:1:1: the spec is empty"},
      {"binary.yaml", 2, "binary.yaml:1:1: control character 0x00"},
      {"/dev/zero", 2, "/dev/zero:1:1: the text has over 65536 bytes"},
      {"large.yaml", 2, "large.yaml:1:1: the text has over 65536 bytes"},
  };
  for (const auto& bad : cases) {
    for (const char* command : {"validate", "emit", "explain", "compile", "run"}) {
      Result result = tilewright({command, bad.file});
      EXPECT_EQ(result.code, bad.code) << command << " " << bad.file;
      EXPECT_TRUE(contains(result.err, bad.message)) << result.err;
    }
  }
}

TEST_F(Specs, TargetsAsTableAndJson) {
  Result table = tilewright({"targets"});
  EXPECT_EQ(table.code, 0);
  EXPECT_TRUE(contains(table.out, "sm_80 ")) << table.out;
  nlohmann::json list = tilewright({"targets", "--json"}).json();
  bool hopper = false;
  for (const auto& target : list) {
    if (target["name"] == "sm_90a") hopper = target["shared_memory_per_block"] == 232448;
  }
  EXPECT_TRUE(hopper);
}

TEST_F(Specs, EmitIsTheSameEverywhere) {
  const std::vector<std::string> arguments = {"emit", shipped("llama-3-8b-prefill"), "--target", "sm_90a"};
  Result first = tilewright(arguments);
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_TRUE(contains(first.out, "attention_forward("));
  EXPECT_FALSE(contains(first.out, "#include"));
  std::filesystem::create_directory(folder / "home");
  environment["HOME"] = (folder / "home").string();
  environment["LC_ALL"] = "de_DE.UTF-8";
  environment["TZ"] = "Asia/Tokyo";
  EXPECT_EQ(tilewright(arguments).out, first.out);
  EXPECT_NE(tilewright({"emit", shipped("llama-3-8b-prefill"), "--target", "sm_80"}).out, first.out);
}

TEST_F(Specs, EmitWritesFiles) {
  write("spec.yaml", "head_dim: 64\n");
  std::string text = tilewright({"emit", "spec.yaml", "--target", "sm_80"}).out;
  Result written = tilewright({"emit", "spec.yaml", "--target", "sm_80", "-o", "kernel.cu"});
  EXPECT_EQ(written.code, 0);
  EXPECT_EQ(written.out, "");
  EXPECT_EQ(contents(folder / "kernel.cu"), text);
  Result failed = tilewright({"emit", "spec.yaml", "--target", "sm_80", "-o", "no/such/folder.cu"});
  EXPECT_EQ(failed.code, 3);
  EXPECT_TRUE(contains(failed.err, "no/such/folder.cu cannot be written"));
}

TEST_F(Specs, EmitForTheSimulatorCallsItsInterface) {
  write("spec.yaml", "head_dim: 64\n");
  Result result = tilewright({"emit", "spec.yaml", "--target", "sm_80", "--simulator"});
  EXPECT_EQ(result.code, 0);
  EXPECT_TRUE(contains(result.out, "struct SimulatorInterface"));
  EXPECT_FALSE(contains(result.out, "asm"));
}

TEST_F(Specs, EmitPtx) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC on this machine";
  write("spec.yaml", "head_dim: 64\n");
  Result result = tilewright({"emit", "spec.yaml", "--target", "sm_80", "--ptx"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(contains(result.out, ".target sm_80")) << result.out.substr(0, 400);
  EXPECT_EQ(result.out.find('\0'), std::string::npos);
}

TEST_F(Specs, BlocksThatDoNotFitAreRefusedWithBytesAndTheNearest) {
  write("spec.yaml", "head_dim: 256\nblocks: {m: 256, n: 256, stages: 4}\n");
  for (const char* command : {"emit", "explain", "compile"}) {
    Result result = tilewright({command, "spec.yaml", "--target", "sm_89"});
    EXPECT_EQ(result.code, 2) << command;
    EXPECT_TRUE(contains(result.err, "101376")) << result.err;
    EXPECT_TRUE(contains(result.err, "nearest that fits: sm80, m ")) << result.err;
  }
}

TEST_F(Specs, ExplainCountsWorkAndBytes) {
  write("spec.yaml", "head_dim: 64\ngqa_ratio: 2\nmask: causal\nblocks: {m: 64, n: 64}\n");
  const std::vector<std::string> arguments = {"explain", "spec.yaml", "--target", "sm_80", "--no-compile",
                                              "--batch", "2",         "--heads",  "4",     "--seqlen-q",
                                              "256"};
  Result text = tilewright(arguments);
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_TRUE(contains(text.out, "batch 2, 4 query heads over 2 KV heads, 256 queries, 256 keys"))
      << text.out;
  EXPECT_TRUE(contains(text.out, "10 visited a head, 4 of them with a mask; 6 skipped"));
  EXPECT_TRUE(contains(text.out, "m 64, n 64"));
  std::vector<std::string> with_json = arguments;
  with_json.push_back("--json");
  nlohmann::json json = tilewright(with_json).json();
  EXPECT_EQ(json["flops"]["needed"], 2 * 4 * (256 * 257 / 2) * 2 * 128);
  EXPECT_EQ(json["flops"]["done"], 2 * 4 * 10 * 64 * 64 * 2 * 128);
  const int rows = 2 * 4 * 256 * 64 * 2;  // Q, and the output
  EXPECT_EQ(json["bytes"]["tiled_least"], 2 * rows + 2 * 2 * 256 * 128 * 2);
  EXPECT_EQ(json["bytes"]["tiled_most"], 2 * rows + 2 * 4 * 640 * 128 * 2);
  EXPECT_EQ(json["bytes"]["materialising"], 2 * rows + 2 * 2 * 256 * 128 * 2 + 2 * 4 * 256 * 256 * 4 * 2);
  EXPECT_EQ(json["tiles"], 2 * 4 * 4);
  EXPECT_EQ(json["not_measured"], "--no-compile");
}

TEST_F(Specs, ExplainLooksThroughTensors) {
  write("spec.yaml",
        "head_dim: 64\nmask: \"document[q] == document[kv]\"\ntensors: {document: 'int32[kv]'}\n"
        "blocks: {m: 64, n: 64}\n");
  const auto npy = [](std::vector<int32_t> values) {
    std::string header =
        "{'descr': '<i4', 'fortran_order': False, 'shape': (" + std::to_string(values.size()) + ",)}";
    std::string bytes =
        std::string("\x93NUMPY\x01") + '\0' + static_cast<char>(header.size()) + '\0' + header;
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * 4);
    return bytes;
  };
  std::vector<int32_t> ids(256, 1);
  std::fill(ids.begin(), ids.begin() + 128, -1);
  write("ids.npy", npy(ids));
  const auto explain = [&](const std::string& file, const std::string& seqlen) {
    return tilewright({"explain", "spec.yaml", "--target", "sm_80", "--no-compile", "--json", "--seqlen-q",
                       seqlen, "--tensor", "document=" + file});
  };
  const nlohmann::json json = explain("ids.npy", "256").json();
  EXPECT_EQ(json["tiles_per_head"]["skipped"], 8);
  EXPECT_EQ(json["tiles_per_head"]["masked"], 0);
  EXPECT_EQ(json["workspace_bytes"], 64) << "4 tiles of queries, 4 of keys, 8 bytes each";
  const Result other = explain("ids.npy", "128");
  EXPECT_EQ(other.code, 2);
  EXPECT_TRUE(
      contains(other.err, "ids.npy has shape [256]; expected [128], or 1 in places, for document: int32[kv]"))
      << other.err;
  const Result run = tilewright(
      {"run", "spec.yaml", "--device", "simulator", "--seqlen-q", "256", "--tensor", "document=ids.npy"});
  EXPECT_EQ(run.code, 0) << run.err;
}

TEST_F(Specs, ExplainOfAFamilyWhoseBlocksShareTiles) {
  write("spec.yaml", "head_dim: 64\ngqa_ratio: 2\nmask: causal\nblocks: {m: 128, n: 64}\n");
  const std::vector<std::string> arguments = {"explain", "spec.yaml", "--target", "sm_90a", "--no-compile",
                                              "--batch", "2",         "--heads",  "4",      "--seqlen-q",
                                              "256"};
  Result text = tilewright(arguments);
  EXPECT_TRUE(contains(text.out, "family sm90, m 128, n 64")) << text.out;
  EXPECT_TRUE(contains(text.out, "a block of 384 threads per SM, 2 query tiles a head, 16 in all"))
      << text.out;
  std::vector<std::string> with_json = arguments;
  with_json.push_back("--json");
  nlohmann::json json = tilewright(with_json).json();
  EXPECT_EQ(json["schedule"]["family"], "sm90");
  EXPECT_EQ(json["tiles"], 16);
  EXPECT_EQ(json["section_heads"], 8);
}

TEST_F(Specs, ExplainSaysWhichVariantALaunchRuns) {
  write("spec.yaml", "head_dim: 72\nmask: causal\n");
  const auto explain = [&](const char* seqlen) {
    return tilewright({"explain", "spec.yaml", "--target", "sm_90a", "--no-compile", "--batch", "16",
                       "--heads", "32", "--seqlen-q", seqlen, "--json"})
        .json();
  };
  nlohmann::json brief = explain("1024"), lengthy = explain("16384");
  EXPECT_EQ(brief["bucket"], "short");
  EXPECT_EQ(brief["schedule"]["m"], 128);
  EXPECT_EQ(brief["other_variants"].size(), 1u);
  EXPECT_EQ(lengthy["bucket"], "long");
  EXPECT_EQ(lengthy["schedule"]["m"], 192);
  Result text = tilewright({"explain", "spec.yaml", "--target", "sm_90a", "--no-compile", "--seqlen-q", "9"});
  EXPECT_TRUE(contains(text.out, "rows (at most 64 queries")) << text.out;
  EXPECT_TRUE(contains(text.out, "long: sm90, m 192")) << text.out;
  const std::vector<std::string> emit = {"emit", "spec.yaml", "--target", "sm_90a"};
  EXPECT_TRUE(contains(tilewright(emit).out, "block_m = 192;"));
  std::vector<std::string> short_variant = emit;
  short_variant.insert(short_variant.end(), {"--bucket", "short"});
  EXPECT_TRUE(contains(tilewright(short_variant).out, "block_m = 128;"));
}

TEST_F(Specs, ExplainMeasuresRegistersWithACompiler) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC on this machine";
  write("spec.yaml", "head_dim: 64\n");
  nlohmann::json json = tilewright({"explain", "spec.yaml", "--target", "sm_80", "--json"}).json();
  EXPECT_GT(json["measured"]["registers"], 32);
  EXPECT_LE(json["measured"]["registers"], 255);
}

TEST_F(Specs, ExplainWithoutACompilerSaysWhyNothingIsMeasured) {
  environment["TILEWRIGHT_NVRTC"] = "/nonexistent/libnvrtc.so";
  write("spec.yaml", "head_dim: 64\n");
  Result result = tilewright({"explain", "spec.yaml", "--target", "sm_80"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(contains(result.out, "not measured: ")) << result.out;
  EXPECT_TRUE(contains(result.out, "/nonexistent/libnvrtc.so"));
}

}  // namespace
}  // namespace tilewright::cli_test
