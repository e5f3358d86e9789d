// Real generated kernels: right as they are, and with one defect seeded into their text the simulator must
// find it.
#include <gtest/gtest.h>

#include <ostream>
#include <random>
#include <stdexcept>

#include "codegen/emit.h"
#include "runtime/arguments.h"
#include "runtime/reference.h"
#include "simulator/host_kernel.h"
#include "simulator/simulator.h"

namespace tilewright {
namespace {

struct Case {
  std::string spec;
  int heads = 2;
  int seqlen_q = 200;
  int seqlen_kv = 200;
};

constexpr const char* two_stages = "head_dim: 64\ndtype: bf16\nblocks: {m: 64, n: 64, stages: 2, warps: 4}\n";
constexpr const char* one_stage = "head_dim: 64\ndtype: bf16\nblocks: {m: 64, n: 64, stages: 1, warps: 4}\n";
constexpr const char* three_stages =
    "head_dim: 64\ndtype: bf16\nblocks: {m: 64, n: 32, stages: 3, warps: 4}\n";
constexpr const char* query_in_shared =
    "head_dim: 64\ndtype: bf16\nblocks: {m: 64, n: 64, stages: 2, warps: 4, query_in_registers: false}\n";
constexpr const char* padded = "head_dim: 40\ndtype: bf16\nblocks: {m: 64, n: 64, stages: 2, warps: 4}\n";

// One problem with its tensors; runs any text that claims to solve it.
class Problem {
 public:
  explicit Problem(const Case& test)
      : spec_(parse_spec(test.spec, "test.yaml")),
        schedule_(choose_schedule(spec_, target_by_name("sm_80"))),
        source_(emit(spec_, schedule_, target_by_name("sm_80"), Backend::simulator)) {
    const int64_t width = spec_.head_dim.qk;
    const auto tensor = [&](int64_t length, std::vector<uint16_t>& storage) {
      storage.resize(2 * margin + test.heads * length * width);
      TensorView view;
      view.data = storage.data() + margin;
      view.dtype = spec_.dtype.q;
      view.shape = {1, length, test.heads, width};
      return view;
    };
    arguments_.q = tensor(test.seqlen_q, q_);
    arguments_.k = tensor(test.seqlen_kv, k_);
    arguments_.v = tensor(test.seqlen_kv, v_);
    arguments_.out = tensor(test.seqlen_q, out_);
    std::mt19937 generator(1);
    std::normal_distribution<double> normal;
    for (std::vector<uint16_t>* storage : {&q_, &k_, &v_}) {
      for (size_t i = 0; i < storage->size(); ++i) {
        store_element(storage->data(), spec_.dtype.q, static_cast<int64_t>(i), normal(generator));
      }
    }
    launch_ = prepare_launch(spec_, schedule_, arguments_);
  }

  const Source& source() const { return source_; }

  HostKernel build(const std::string& text, SimulatorCompiler compiler = SimulatorCompiler::automatic) const {
    Source changed = source_;
    changed.text = text;
    return build_host_kernel(changed, compiler);
  }

  simulator::Report run(const HostKernel& kernel, uint64_t seed, int64_t grid = -1) {
    std::fill(out_.begin(), out_.end(), uint16_t{0xffff});
    simulator::Launch run;
    run.kernel_name = source_.kernel_name;
    run.thunk = kernel.thunk;
    run.bind = kernel.bind;
    run.parameters = &launch_.parameters;
    run.grid = grid < 0 ? launch_.plan.tiles : grid;
    run.threads = source_.threads;
    run.shared_memory = source_.shared_memory;
    run.seed = seed;
    const auto add = [&](const char* name, std::vector<uint16_t>& storage, bool output) {
      run.buffers.push_back(
          {storage.data() + margin, (storage.size() - 2 * margin) * sizeof(uint16_t), name, output, !output});
    };
    add("q", q_, false);
    add("k", k_, false);
    add("v", v_, false);
    add("out", out_, true);
    return simulator::run(run);
  }

  Verdict verdict() const { return compare_forward(spec_, arguments_); }
  const std::vector<uint16_t>& out() const { return out_; }
  int64_t grid() const { return launch_.plan.tiles; }

 private:
  // Elements around each tensor: a tile too far must not land in a neighbour by chance.
  static constexpr size_t margin = 1 << 16;

  AttentionSpec spec_;
  Schedule schedule_;
  Source source_;
  std::vector<uint16_t> q_, k_, v_, out_;
  ForwardArguments arguments_;
  PreparedLaunch launch_;
};

// --- as they are

class SoundKernel : public testing::TestWithParam<const char*> {};

TEST_P(SoundKernel, EverySeedGivesTheRightAnswer) {
  Problem problem({GetParam()});
  const HostKernel kernel = problem.build(problem.source().text);
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const simulator::Report report = problem.run(kernel, seed);
    ASSERT_TRUE(report.ok) << "seed " << seed << ": " << with_source_line(report, problem.source().text);
    const Verdict verdict = problem.verdict();
    ASSERT_TRUE(verdict.ok) << "seed " << seed << ": " << verdict.message;
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, SoundKernel,
                         testing::Values(two_stages, one_stage, three_stages, query_in_shared, padded));

// Both compile the same text; neither may fuse a multiply with an add, so that their results are the same
// bits.
TEST(HostCompilers, AgreeBitForBit) {
  Problem problem({two_stages});
  const std::string& text = problem.source().text;
  const HostKernel system = problem.build(text, SimulatorCompiler::system);
  const HostKernel automatic = problem.build(text);
  EXPECT_NE(system.compiler.find("system C++ compiler"), std::string::npos);
  EXPECT_TRUE(problem.run(system, 0).ok);
  const std::vector<uint16_t> expected = problem.out();
  EXPECT_TRUE(problem.run(automatic, 0).ok);
  EXPECT_EQ(problem.out(), expected);
}

// --- with a defect. Seeded into the primitives, or into calls that every kernel has: templates may change
// freely.

std::string replace_once(const std::string& text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) throw std::runtime_error("not in the source: " + from);
  return text.substr(0, at) + to + text.substr(at + from.size());
}

struct Defect {
  const char* name;
  Case problem;
  const char* from;
  const char* to;
  const char* message;  // part of every report; empty: no fault, but a wrong answer
};

void PrintTo(const Defect& defect, std::ostream* out) {
  *out << defect.name;
}

class SeededDefect : public testing::TestWithParam<Defect> {};

TEST_P(SeededDefect, IsFoundWithEverySeed) {
  const Defect& defect = GetParam();
  Problem problem(defect.problem);
  const std::string text = replace_once(problem.source().text, defect.from, defect.to);
  const HostKernel kernel = problem.build(text);
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const simulator::Report report = problem.run(kernel, seed);
    if (*defect.message) {
      ASSERT_FALSE(report.ok) << "seed " << seed;
      ASSERT_NE(report.message.find(defect.message), std::string::npos) << report.message;
      ASSERT_NE(report.message.find("kernel attention_forward, block "), std::string::npos) << report.message;
    } else {
      ASSERT_TRUE(report.ok) << with_source_line(report, text);
      ASSERT_FALSE(problem.verdict().ok) << "seed " << seed;
    }
  }
}

constexpr const char* barrier = "simulator->block_barrier(site)";
constexpr const char* wait = "simulator->copy_async_wait(groups, site)";
constexpr const char* copy = "simulator->copy_async_16(destination, source, bytes, site)";
constexpr const char* load_rows = "simulator->load_matrix_x4(r, address, 0, site)";
constexpr const char* shuffle = "return simulator->shuffle_xor(value, mask, site)";

INSTANTIATE_TEST_SUITE_P(
    Kernel, SeededDefect,
    testing::Values(
        Defect{"no_wait", {two_stages}, wait, "", "still in flight"},
        Defect{"wait_leaves_one_too_many",
               {two_stages},
               wait,
               "simulator->copy_async_wait(groups + 1, site)",
               "still in flight"},
        Defect{"exits_with_copies_in_flight",
               {query_in_shared, 1, 64, 0},
               wait,
               "",
               "asynchronous copies still in flight"},
        Defect{"no_commit", {two_stages}, "simulator->copy_async_commit(site)", "", "still in flight"},
        Defect{"no_barriers", {two_stages}, barrier, "", "load_matrix_x4"},
        Defect{"no_barriers_three_stages", {three_stages}, barrier, "", "load_matrix_x4"},
        Defect{"one_warp_skips_barriers",
               {two_stages},
               barrier,
               "if (simulator->thread_index() >= 32) simulator->block_barrier(site)",
               "line"},
        Defect{"different_barriers",
               {two_stages},
               barrier,
               "simulator->block_barrier(site + simulator->thread_index() / 64)",
               "mismatched barriers"},
        Defect{"one_warp_leaves_early",
               {two_stages},
               "_thunk(const void* parameters) {",
               "_thunk(const void* parameters) {\n  if (simulator->thread_index() >= 96) return;",
               "have exited"},
        Defect{"one_lane_skips_ldmatrix",
               {two_stages},
               load_rows,
               "if (simulator->thread_index() % 32 != 5) simulator->load_matrix_x4(r, address, 0, site)",
               "divergence"},
        Defect{"shuffle_under_a_branch",
               {two_stages},
               shuffle,
               "if (simulator->thread_index() & 1) simulator->shuffle_xor(value, mask, site - 1);\n"
               "return simulator->shuffle_xor(value, mask, site)",
               "divergence"},
        Defect{"reads_rows_past_the_end",
               {two_stages},
               copy,
               "simulator->copy_async_16(destination, source, 16, site)",
               "outside of every buffer"},
        Defect{"padding_not_zeroed",
               {padded},
               copy,
               "if (bytes) simulator->copy_async_16(destination, source, bytes, site)",
               "uninitialised read"},
        Defect{"misaligned_copy",
               {two_stages},
               copy,
               "simulator->copy_async_16(destination + 8, source, bytes, site)",
               "misaligned"},
        Defect{"tiles_too_far_in_shared_memory",
               {two_stages},
               copy,
               "simulator->copy_async_16(destination + 0x10000, source, bytes, site)",
               "out of bounds"},
        Defect{"tile_computed_twice",
               {two_stages},
               "return simulator->block_index()",
               "return simulator->block_index() / 2",
               "written before by"},
        Defect{"v_not_transposed",
               {two_stages},
               "simulator->load_matrix_x4(r, address, 1, site)",
               load_rows,
               ""},
        Defect{"wrong_type_of_product", {two_stages}, "b0, b1, 1, site)", "b0, b1, 0, site)", ""}),
    [](const auto& defect) { return defect.param.name; });

/// The text without the `index`-th call that starts with `call`, counted from the first line of the kernel's
/// body; empty if there are fewer.
std::string without_call(const std::string& text, const std::string& call, int index) {
  size_t at = text.find(" void forward(");
  for (int i = 0; i <= index && at != std::string::npos; ++i) at = text.find(call, at + 1);
  if (at == std::string::npos) return "";
  return text.substr(0, at) + text.substr(text.find(';', at) + 1);
}

class SynchronisingCall : public testing::TestWithParam<const char*> {};

// Each call in the kernel is there for a reason: without it there is a schedule that fails with every seed.
TEST_P(SynchronisingCall, NoneCanBeLeftOut) {
  const Case cases[] = {
      {two_stages}, {one_stage}, {three_stages}, {query_in_shared}, {query_in_shared, 1, 64, 0}};
  int calls = 0;
  for (bool any = true; any; ++calls) {
    any = false;
    bool found = false;
    for (const Case& test : cases) {
      Problem problem(test);
      const std::string text = without_call(problem.source().text, GetParam(), calls);
      if (text.empty()) continue;
      any = true;
      const HostKernel kernel = problem.build(text);
      bool every_seed = true;
      for (uint64_t seed = 0; seed < 5 && every_seed; ++seed) every_seed = !problem.run(kernel, seed).ok;
      found = found || every_seed;
    }
    // The wait behind the loop only keeps copies from outliving their block, which the simulator lets pass.
    const bool behind_the_loop = std::string(GetParam()) == "copy_async_wait<" && calls == 3;
    EXPECT_TRUE(found || !any || behind_the_loop) << "call " << calls + 1 << " of " << GetParam();
  }
  EXPECT_GT(calls, 2);
}

INSTANTIATE_TEST_SUITE_P(Kernel, SynchronisingCall,
                         testing::Values("block_barrier(", "copy_async_wait<", "copy_async_commit("));

}  // namespace
}  // namespace tilewright
