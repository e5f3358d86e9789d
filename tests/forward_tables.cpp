// Masks that look up by key: tiles are skipped by tables of their tensors, which a kernel before the main one
// fills. In both families.
#include <cmath>
#include <limits>

#include "codegen/kernel_expressions.h"
#include "codegen/look_up_tables.h"
#include "runtime/arguments.h"
#include "tests/support/attention_case.h"
#include "tests/support/random_expression.h"

namespace tilewright {
namespace {

using test::run_case;

constexpr int64_t rows = 200, keys = 333, columns = 16;
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

/// One head with inputs of its own, launched again and again. Tiles are of 64 rows and 16 keys.
class TableLaunch {
 public:
  TableLaunch(Runtime& runtime, const std::string& mask_and_tensors)
      : spec_(parse_spec("{head_dim: 16, blocks: {m: 64, n: 16}, mask: " + mask_and_tensors + "}", "spec")),
        kernel_(runtime.kernel(spec_)) {
    for (int64_t i = 0; i < rows * columns; ++i) store_element(q_.data(), DataType::bf16, i, std::sin(i));
    for (int64_t i = 0; i < keys * columns; ++i) {
      store_element(k_.data(), DataType::bf16, i, std::sin(2 * i));
      store_element(v_.data(), DataType::bf16, i, std::cos(3 * i));
    }
    workspace_.assign(static_cast<size_t>(kernel_->workspace_size(shape())) / 4, -1);
  }

  static LaunchShape shape() { return {.batch = 1, .heads = 1, .seqlen_q = rows, .seqlen_kv = keys}; }
  const Schedule& schedule() const { return kernel_->schedule(); }
  std::vector<int32_t>& workspace() { return workspace_; }
  std::vector<uint16_t>& values() { return v_; }

  template <typename Element>
  void give(const std::string& name, std::vector<Element>& data) {
    const DataType type = sizeof(Element) == 1           ? DataType::boolean
                          : std::is_same_v<Element, int> ? DataType::int32
                                                         : DataType::fp32;
    arguments_.tensors[name] = {data.data(), type, {static_cast<int64_t>(data.size())}, {}};
  }

  std::vector<uint16_t> operator()(bool unchanged = false) {
    std::vector<uint16_t> out(rows * columns, 0xffff);
    const auto view = [](std::vector<uint16_t>& data) {
      return TensorView{
          data.data(), DataType::bf16, {1, static_cast<int64_t>(data.size()) / columns, 1, columns}, {}};
    };
    arguments_.q = view(q_), arguments_.k = view(k_), arguments_.v = view(v_), arguments_.out = view(out);
    arguments_.workspace = workspace_.data();
    arguments_.workspace_bytes = workspace_.size() * 4;
    arguments_.tensors_unchanged = unchanged;
    kernel_->launch(nullptr, arguments_);
    return out;
  }

  std::string refusal(void* workspace, size_t bytes) {
    ForwardArguments arguments = arguments_;
    arguments.workspace = workspace, arguments.workspace_bytes = bytes;
    try {
      kernel_->launch(nullptr, arguments);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

 private:
  AttentionSpec spec_;
  std::shared_ptr<const Kernel> kernel_;
  std::vector<uint16_t> q_ = std::vector<uint16_t>(rows * columns),
                        k_ = std::vector<uint16_t>(keys * columns), v_ = k_;
  std::vector<int32_t> workspace_;
  ForwardArguments arguments_;
};

class Tables : public testing::TestWithParam<const char*> {
 protected:
  Runtime runtime{test::simulator_options(3, GetParam())};
};

std::vector<int> documents(int64_t from) {
  std::vector<int> documents(keys);
  for (int64_t key = 0; key < keys; ++key) documents[key] = key < from ? 7 : 9;
  return documents;
}

// A tile that is visited brings in its values, hidden or not: 0 * NaN is NaN.
TEST_P(Tables, TilesOfOtherDocumentsAreNotVisited) {
  TableLaunch launch(runtime, "\"document[q] == document[kv]\", tensors: {document: 'int32[kv]'}");
  constexpr int64_t first = 64 + keys - rows;  // the second document begins with the second tile of rows
  std::vector<int> document = documents(first);
  launch.give("document", document);
  const std::vector<uint16_t> expected = launch();
  for (const auto& [begin, end] :
       {std::pair<int64_t, int64_t>{(first + 15) / 16 * 16, keys}, {0, first / 16 * 16}}) {
    const std::vector<uint16_t> kept = launch.values();
    for (int64_t i = begin * columns; i < end * columns; ++i)
      store_element(launch.values().data(), DataType::bf16, i, nan);
    const std::vector<uint16_t> out = launch();
    launch.values() = kept;
    for (int64_t i = 0; i < rows * columns; ++i) {
      const bool own = (i / columns < 64) == (begin == 0);
      EXPECT_EQ(out[i] == expected[i], !own) << "row " << i / columns << " values from " << begin;
    }
  }
}

TEST_P(Tables, UnchangedTensorsAreNotLookedThroughAgain) {
  TableLaunch launch(runtime, "\"document[q] == document[kv]\", tensors: {document: 'int32[kv]'}");
  std::vector<int> document = documents(160);
  launch.give("document", document);
  const std::vector<uint16_t> before = launch();
  EXPECT_EQ(launch(true), before);
  // What becomes of a lie says that the tables of before were used: to a tile that lies in one document they
  // show it all.
  std::fill(document.begin(), document.end(), 9);
  std::fill(document.begin() + 162, document.begin() + 170, 7);
  const std::vector<uint16_t> lied = launch(true), after = launch();
  const auto row_of = [](const std::vector<uint16_t>& out, int64_t row) {
    return std::vector<uint16_t>(out.begin() + row * columns, out.begin() + (row + 1) * columns);
  };
  EXPECT_NE(after, before);
  EXPECT_EQ(row_of(lied, 199), row_of(before, 199)) << "a row of a tile that lies in one document";
  EXPECT_NE(row_of(after, 199), row_of(before, 199));
}

TEST_P(Tables, HoldTheSmallestAndTheLargest) {
  TableLaunch launch(
      runtime,
      "\"number[kv] < 5 && weight[kv] <= limit[q] && !keep[kv] && number[kv + 3] < 900\", tensors: "
      "{number: 'int32[kv]', weight: 'float32[kv]', limit: 'float32[q]', keep: 'bool[kv]'}");
  std::vector<int> number(keys);
  std::vector<float> weight(keys), limit(rows);
  std::vector<unsigned char> keep(keys);
  for (int i = 0; i < keys; ++i) {
    number[i] = i * 7919 % 1000 - 500;
    weight[i] = i == 40 ? nan : i == 70 ? infinity : i == 100 ? -infinity : std::sin(static_cast<float>(i));
    keep[i] = i / 20 % 3 == 0 ? 2 : 0;  // any bits but 0 are true
  }
  for (int i = 0; i < rows; ++i) limit[i] = i == 130 ? nan : std::cos(static_cast<float>(i));
  launch.give("number", number), launch.give("weight", weight), launch.give("limit", limit);
  launch.give("keep", keep);
  launch();
  const std::vector<int32_t>& words = launch.workspace();
  size_t at = 0;
  const auto expect_floats = [&](const std::vector<float>& data, int64_t tile, const char* name) {
    for (size_t first = 0; first < data.size(); first += tile, at += 2) {
      float low = infinity, high = -infinity, found[2];
      bool has_nan = false;
      for (size_t i = first; i < std::min(first + tile, data.size()); ++i)
        low = std::min(low, data[i]), high = std::max(high, data[i]), has_nan |= std::isnan(data[i]);
      std::memcpy(found, &words[at], sizeof found);
      EXPECT_EQ(found[0], has_nan ? -infinity : low) << name << " from " << first;
      EXPECT_EQ(found[1], has_nan ? infinity : high) << name << " from " << first;
    }
  };
  const auto expect_ints = [&](const auto& value, const char* name) {
    for (int64_t first = 0; first < keys; first += 16, at += 2) {
      int low = INT32_MAX, high = INT32_MIN;
      for (int64_t i = first; i < std::min(first + 16, keys); ++i)
        low = std::min(low, value(i)), high = std::max(high, value(i));
      EXPECT_EQ(words[at], low) << name << " from " << first;
      EXPECT_EQ(words[at + 1], high) << name << " from " << first;
    }
  };
  expect_ints([&](int64_t i) { return number[i]; }, "number");
  expect_floats(weight, 16, "weight");
  expect_floats(limit, 64, "limit");
  expect_ints([&](int64_t i) { return keep[i] != 0 ? 1 : 0; }, "keep");
  expect_ints([&](int64_t i) { return number[std::min(i + 3, keys - 1)]; }, "number further on");
  EXPECT_EQ(at, words.size());
}

TEST_P(Tables, FloatsAndNanInMasks) {
  for (const std::string mask :
       {"weight[kv] < limit[q]", "!(weight[kv] >= limit[q])", "weight[kv] != limit[q]",
        "abs(weight[kv]) <= 0.25", "weight[kv] == weight[kv]"})
    run_case(runtime, {.spec = "{head_dim: 16, lse: true, blocks: {m: 64, n: 16}, mask: \"" + mask +
                               "\", tensors: {weight: 'float32[kv]'" +
                               (mask.find("limit") == mask.npos ? "" : ", limit: 'float32[q]'") + "}}",
                       .seqlen_q = 130,
                       .seqlen_kv = 150,
                       .tensors = {{"weight",
                                    {{150},
                                     [](const auto& i) -> double {
                                       return i[0] % 50 == 33   ? nan
                                              : i[0] % 50 == 40 ? infinity
                                                                : static_cast<double>(i[0] / 16) / 4;
                                     }}},
                                   {"limit", {{130}, [](const auto& i) -> double {
                                                return i[0] == 100 ? nan : static_cast<double>(i[0] / 64);
                                              }}}}});
}

TEST_P(Tables, RandomMasks) {
  RandomExpressions random(11);
  random.with_floats = false;  // fp32 and fp64 may compare otherwise
  int tried = 0;
  for (int i = 0; tried < 8; ++i) {
    ASSERT_LT(i, 2000);
    AttentionSpec spec;
    spec.mask.kind = Mask::Kind::expression;
    spec.mask.expression = random.mask(5);
    if (look_up_tables(spec).empty() || spec.mask.expression->size() > 60) continue;
    const KernelExpressions expressions = kernel_expressions(spec);
    ASSERT_EQ(expressions.tables, look_up_tables(spec)) << "a mask that looks up by key is scanned";
    ++tried;
    std::set<std::string> names;
    collect_names(*spec.mask.expression, names);
    std::string scalars, tensors;
    for (const auto& [name, type] : random_declarations().tensors)
      if (names.count(name)) tensors += (tensors.empty() ? "" : ", ") + name + ": '" + to_text(type) + "'";
    for (const char* name : {"width", "step"})
      if (names.count(name)) scalars += (scalars.empty() ? "" : ", ") + std::string(name) + ": int";
    run_case(
        runtime,
        {.spec = "{head_dim: 16, gqa_ratio: 2, lse: true, blocks: {m: 64, n: 16}, mask: \"" +
                 to_text(*spec.mask.expression) + "\"" +
                 (scalars.empty() ? "" : ", scalars: {" + scalars + "}") + ", tensors: {" + tensors + "}}",
         .batch = 2,
         .heads_kv = 2,
         .seqlen_q = 70,
         .seqlen_kv = 90,
         .scalars = {{"width", 20}, {"step", 3}},
         .tensors = {
             {"document", {{90}, [](const auto& at) { return at[0] / 25 * 4; }}},
             {"keep", {{2, 90}, [](const auto& at) { return at[0] == 0 ? at[1] < 40 : at[1] > 30; }}}}});
  }
}

TEST_P(Tables, OfHeadsAndBatches) {
  run_case(runtime,
           {.spec = "{head_dim: 16, gqa_ratio: 2, blocks: {m: 64, n: 16}, mask: \"keep[batch, kv] && "
                    "place[head, kv / 2] <= limit[head, q]\", tensors: {keep: 'bool[batch, kv]', place: "
                    "'int32[head, kv]', limit: 'int32[head, q]'}}",
            .batch = 3,
            .heads_kv = 2,
            .seqlen_q = 150,
            .seqlen_kv = 100,
            .tensors = {{"keep", {{3, 100}, [](const auto& i) { return i[1] / 30 != i[0]; }}},
                        {"place", {{4, 100}, [](const auto& i) { return i[0] * 10 + i[1] % 48; }}},
                        {"limit", {{4, 150}, [](const auto& i) { return i[0] * 9 + i[1] / 8; }}}}});
}

TEST_P(Tables, AWorkspaceThatWillNotDo) {
  TableLaunch launch(runtime, "\"document[q] == document[kv]\", tensors: {document: 'int32[kv]'}");
  std::vector<int> document = documents(160);
  launch.give("document", document);
  launch();
  const std::string expected = "expected 200 bytes (Kernel::workspace_size)";  // 4 tiles of rows, 21 of keys
  alignas(16) char memory[256];
  EXPECT_EQ(launch.refusal(nullptr, 0), "workspace: it is missing, " + expected);
  EXPECT_EQ(launch.refusal(memory, 199), "workspace: it has 199 bytes, " + expected);
  EXPECT_EQ(launch.refusal(memory + 4, 200),
            "workspace: its address is no multiple of 16 bytes, which is expected");
}

INSTANTIATE_TEST_SUITE_P(Simulator, Tables, testing::Values("sm_80", "sm_90a"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tilewright
