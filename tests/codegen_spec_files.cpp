// The specs that ship, and the schema that editors check them with.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "codegen/error.h"
#include "codegen/spec.h"
#include "codegen/spec_rules.h"

namespace tilewright {
namespace {

const std::filesystem::path specs = std::filesystem::path(TILEWRIGHT_SOURCE_DIR) / "specs";

std::string contents(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

AttentionSpec shipped(const std::string& name) {
  std::filesystem::path file = specs / (name + ".yaml");
  return parse_spec(contents(file), file.string());
}

TEST(SpecFiles, EveryOneParsesAndNamesItselfAndItsSchema) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(specs)) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path().string());
    ++count;
    std::string text = contents(entry.path());
    EXPECT_TRUE(text.starts_with("# yaml-language-server: $schema=schema.json\n# "));
    EXPECT_EQ(parse_spec(text, entry.path().string()).name, entry.path().stem().string());
  }
  EXPECT_GE(count, 11);
}

TEST(SpecFiles, HoldTheModelsNumbers) {
  EXPECT_EQ(canonical_form(shipped("llama-3-8b-prefill")), "head_dim: 128\ngqa_ratio: 4\nmask: causal\n");
  EXPECT_EQ(canonical_form(shipped("mistral-7b-prefill")),
            "head_dim: 128\ngqa_ratio: 4\nmask: {window: [4095, 0]}\n");
  EXPECT_EQ(canonical_form(shipped("qwen2.5-7b-prefill")), "head_dim: 128\ngqa_ratio: 7\nmask: causal\n");
  EXPECT_EQ(canonical_form(shipped("qwen2.5-14b-prefill")), "head_dim: 128\ngqa_ratio: 5\nmask: causal\n");
  EXPECT_EQ(canonical_form(shipped("gemma-2-9b-prefill")),
            "head_dim: 256\ngqa_ratio: 2\nmask: causal\nsoftcap: 50\n");
  EXPECT_EQ(canonical_form(shipped("phi-3-mini-prefill")), "head_dim: 96\nmask: {window: [2047, 0]}\n");
  EXPECT_EQ(canonical_form(shipped("falcon-7b-prefill")), "head_dim: 64\ngqa_ratio: 71\nmask: causal\n");
  EXPECT_EQ(canonical_form(shipped("stablelm-3b-prefill")), "head_dim: 80\nmask: causal\n");
  EXPECT_EQ(canonical_form(shipped("minilm-l6-v2")), "head_dim: 32\ndtype: fp16\n");
  EXPECT_EQ(canonical_form(shipped("gpt-2-train")),
            "pass: backward\nhead_dim: 64\nmask: causal\ndropout: true\n");
  EXPECT_EQ(canonical_form(shipped("gpt-oss-20b-prefill")),
            "head_dim: 64\ngqa_ratio: 8\nmask: {window: [127, 0]}\nsinks: true\n");
  EXPECT_EQ(canonical_form(shipped("deepseek-v3-prefill")),
            "head_dim: {qk: 192, v: 128}\nmask: causal\nsoftmax_scale: 0.1352337788608801\n");
}

class SpecSchema : public testing::Test {
 protected:
  nlohmann::json schema = nlohmann::json::parse(contents(specs / "schema.json"));
  const nlohmann::json& property(const std::string& key) { return schema["properties"][key]; }

  template <typename Keys>
  static void expect_keys(const nlohmann::json& object, const Keys& keys) {
    EXPECT_EQ(object["additionalProperties"], false);
    std::set<std::string> in_schema, in_parser(keys.begin(), keys.end());
    for (const auto& [key, value] : object["properties"].items()) in_schema.insert(key);
    EXPECT_EQ(in_schema, in_parser);
  }

  static void expect_range(const nlohmann::json& object, const IntegerRule& rule) {
    SCOPED_TRACE(rule.field);
    EXPECT_EQ(object["type"], "integer");
    EXPECT_EQ(object["minimum"], rule.low);
    EXPECT_EQ(object["maximum"], rule.high);
    EXPECT_EQ(object.value("multipleOf", 1), rule.multiple);
  }
};

TEST_F(SpecSchema, KnowsTheParsersKeys) {
  expect_keys(schema, spec_keys);
  expect_keys(property("head_dim")["oneOf"][1], head_dim_keys);
  expect_keys(property("dtype")["oneOf"][1], dtype_keys);
  const nlohmann::json &plain = schema["$defs"]["plain_mask"]["oneOf"][1],
                       &listed = property("mask")["oneOf"][1];
  nlohmann::json mask = listed;
  mask["properties"].update(plain["properties"]);
  expect_keys(mask, mask_keys);
  expect_keys(listed["properties"]["blocks"], mask_block_keys);
  expect_keys(property("blocks")["oneOf"][1], block_keys);
}

TEST_F(SpecSchema, KnowsTheParsersRanges) {
  expect_range(schema["$defs"]["head_size"], head_dim_rule);
  expect_range(schema["$defs"]["head_size"], head_dim_qk_rule);
  expect_range(schema["$defs"]["head_size"], head_dim_v_rule);
  expect_range(property("gqa_ratio"), gqa_ratio_rule);
  expect_range(property("page_size"), page_size_rule);
  expect_range(schema["$defs"]["plain_mask"]["oneOf"][1]["properties"]["window"]["items"]["oneOf"][0],
               window_rule);
  const nlohmann::json& listed = property("mask")["oneOf"][1]["properties"]["blocks"]["properties"];
  expect_range(listed["m"], mask_block_m_rule);
  expect_range(listed["n"], mask_block_n_rule);
  const nlohmann::json& blocks = property("blocks")["oneOf"][1]["properties"];
  expect_range(blocks["m"], block_m_rule);
  expect_range(blocks["n"], block_n_rule);
  expect_range(blocks["stages"], block_stages_rule);
  expect_range(blocks["warps"], block_warps_rule);
  EXPECT_EQ(property("softmax_scale")["oneOf"][0]["minimum"], softmax_scale_rule.low);
  EXPECT_EQ(property("softmax_scale")["oneOf"][0]["maximum"], softmax_scale_rule.high);
  EXPECT_EQ(property("softcap")["oneOf"][1]["minimum"], softcap_rule.low);
  EXPECT_EQ(property("softcap")["oneOf"][1]["maximum"], softcap_rule.high);
}

/// The parser takes every word of the schema, and says the same about a word outside it.
TEST_F(SpecSchema, KnowsTheParsersWords) {
  const std::pair<const char*, nlohmann::json> lists[] = {
      {"pass", property("pass")["enum"]},
      {"dtype", schema["$defs"]["data_type"]["enum"]},
      {"mask", schema["$defs"]["plain_mask"]["oneOf"][0]["enum"]},
      {"layout", property("layout")["enum"]},
      {"rope", property("rope")["enum"]},
  };
  for (const auto& [key, words] : lists) {
    std::string all;
    for (const std::string word : words) {
      std::string page = word == "paged" ? "page_size: 16\n" : "";
      EXPECT_NO_THROW(parse_spec(std::string(key) + ": " + word + "\nhead_dim: 64\n" + page, "spec.yaml"))
          << word;
      all += (all.empty() ? "" : ", ") + word;
    }
    try {
      parse_spec(std::string(key) + ": neither\nhead_dim: 64\n", "spec.yaml");
      ADD_FAILURE() << key;
    } catch (const SpecError& error) {
      EXPECT_NE(std::string(error.what()).find("expected one of " + all), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace tilewright
