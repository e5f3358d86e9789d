// Real generated kernels: right as they are, and with one defect seeded into their text the simulator must
// find it.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

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
      storage.resize(test.heads * length * width);
      TensorView view;
      view.data = storage.data();
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
    run.grid = grid < 0 ? launch_.plan.grid : grid;
    run.threads = source_.threads;
    run.shared_memory = source_.shared_memory;
    run.seed = seed;
    const auto add = [&](const char* name, std::vector<uint16_t>& storage, bool output) {
      run.buffers.push_back({storage.data(), storage.size() * 2, name, output, !output});
    };
    add("q", q_, false);
    add("k", k_, false);
    add("v", v_, false);
    add("out", out_, true);
    return simulator::run(run);
  }

  Verdict verdict() const { return compare_forward(spec_, arguments_); }
  const std::vector<uint16_t>& out() const { return out_; }
  int64_t grid() const { return launch_.plan.grid; }

 private:
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

// --- with a defect

struct Defect {
  const char* name;
  Case problem;
  const char* after;  // search starts behind this text; empty: at the beginning
  const char* from;
  const char* to;
  const char* message;  // part of every report; empty: no fault, but a wrong answer
};

class SeededDefect : public testing::TestWithParam<Defect> {};

std::string seed_defect(const std::string& text, const Defect& defect) {
  const size_t start = text.find(defect.after);
  const size_t at = start == std::string::npos ? start : text.find(defect.from, start);
  if (at == std::string::npos) throw std::runtime_error(std::string("not in the source: ") + defect.from);
  return text.substr(0, at) + defect.to + text.substr(at + std::string(defect.from).size());
}

TEST_P(SeededDefect, IsFoundWithEverySeed) {
  const Defect& defect = GetParam();
  Problem problem(defect.problem);
  const std::string text = seed_defect(problem.source().text, defect);
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

constexpr const char* main_loop = "for (int j = tiles.end - 1";
const Case plain = {two_stages};

INSTANTIATE_TEST_SUITE_P(
    Kernel, SeededDefect,
    testing::Values(
        Defect{"no_wait_for_copies", plain, main_loop, "copy_async_wait<groups_in_flight>();", "",
               "still in flight"},
        Defect{"wait_leaves_one_too_many", plain, main_loop, "copy_async_wait<groups_in_flight>();",
               "copy_async_wait<groups_in_flight + 1>();", "still in flight"},
        Defect{"no_barrier_after_wait", plain, main_loop, "block_barrier();", "", "race"},
        Defect{
            "no_barrier_after_wait_three_stages", {three_stages}, main_loop, "block_barrier();", "", "race"},
        Defect{"no_barrier_before_refill",
               {one_stage},
               main_loop,
               "copy_async_wait<0>();\n      block_barrier();",
               "copy_async_wait<0>();",
               "race"},
        Defect{"refills_the_tile_in_use", plain, main_loop, "stage == 0 ? stages - 1 : stage - 1", "stage",
               "still in flight"},
        Defect{"copies_not_committed", plain, main_loop, "copy_async_commit();", "", "still in flight"},
        Defect{"exits_with_copies_in_flight",
               {query_in_shared, 1, 64, 0},
               main_loop,
               "copy_async_wait<0>();\n\n",
               "",
               "asynchronous copies still in flight"},
        Defect{"one_warp_skips_the_barrier", plain, main_loop, "block_barrier();",
               "if (thread_index() >= 32) block_barrier();", "attention_forward"},
        Defect{"two_different_barriers", plain, main_loop, "block_barrier();",
               "if (thread_index() < 64) block_barrier();\n    else block_barrier();", "mismatched barriers"},
        Defect{"rows_past_the_end_leave_early", plain, "", "  int stage = 0;",
               "  if (warp_row >= p.seqlen_q) return;\n  int stage = 0;", "have exited"},
        Defect{"lane_skips_ldmatrix", plain, "compute_scores", "load_matrix_x4(b,",
               "if (thread_index() % 32 != 5) load_matrix_x4(b,", "divergence"},
        Defect{"shuffle_under_a_branch", plain, "", "sum += shuffle_xor(sum, 1);",
               "if (thread_index() & 1) sum += shuffle_xor(sum, 1);", "divergence"},
        Defect{"reads_rows_past_the_end", plain, "load_tile", "i + row < live_rows ? 16 : 0", "true ? 16 : 0",
               "outside of every buffer"},
        Defect{"tile_too_far_in_shared_memory", plain, "", "= query_tile + query_tile_bytes;",
               "= query_tile + 3 * query_tile_bytes;", "out of bounds"},
        Defect{"padding_not_zeroed",
               {padded},
               "load_tile",
               "        copy_async_16(",
               "        if (!padding) copy_async_16(",
               "uninitialised read"},
        Defect{"misaligned_row", plain, "load_tile", "chunk * 16;", "chunk * 16 + 8;", "misaligned"},
        Defect{"tile_computed_twice", plain, "", "const int block = block_index();",
               "const int block = block_index() / 2;", "written before by"},
        Defect{"reads_output", plain, "", "  int stage = 0;",
               "  float was;\n  simulator->global_load(&was, p.out.data, 4, __LINE__);\n  int stage = 0;",
               "that nobody has written"},
        Defect{"writes_input", plain, "", "(u16*)p.out.data", "(u16*)p.q.data", "may only read"},
        Defect{"v_not_transposed", plain, "accumulate_output", "load_matrix_x4_transposed(",
               "load_matrix_x4(", ""},
        Defect{"wrong_accumulator_half", plain, "", "half * 2 + 1] * factor", "1] * factor", ""}),
    [](const auto& defect) { return defect.param.name; });

}  // namespace
}  // namespace tilewright
