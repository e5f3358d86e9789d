// Each primitive on the GPU against its emulation, bit for bit: layouts of fragments, descriptors, swizzles,
// fills and rounding. Approximate functions may differ by the error that the PTX manual allows them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "codegen/template_items.h"
#include "codegen/templates.h"
#include "codegen/warpgroup_products.h"
#include "runtime/device.h"
#include "runtime/reference.h"

namespace tilewright {
namespace {

constexpr int head_dim = 128, rows = 128, block_n = 64;
constexpr int words = rows * head_dim / 2;  // of the output, which the kernels below fill with what they saw

struct PrimitiveCase {
  const char* name;
  const char* body;      // of a kernel of one warpgroup; `put(i, word)` writes word `i` of the output
  double tolerance = 0;  // relative; 0: equal bits
  int cluster = 1;
};

// Q, K and V hold eighths between -2 and 2, so that every sum of products is exact in any order.
const PrimitiveCase cases[] = {
    {"PackElement", R"(
  for (int i = 0; i < 16; ++i) {
    const u32 low = scrambled(thread * 32 + i), high = scrambled(thread * 32 + i + 16);
    put(thread * 16 + i, pack_element(as_float(low), as_float(high)));
  }
  const u32 special[8] = {0x7f800000u, 0xff800000u, 0x7fc00001u, 0x00000001u, 0x3f808000u, 0x3f818000u, 0x477fffffu, 0x80000000u};
  if (thread < 8) put(2048 + thread, pack_element(as_float(special[thread]), as_float(special[7 - thread])));
)"},
    {"WarpExchanges", R"(
  const u32 mine = scrambled(thread);
  for (int mask = 1; mask < 32; ++mask) put(thread * 32 + mask, shuffle_xor(mine, mask));
  put(thread * 32, shuffle_xor(as_float(mine & 0x3fffffffu), 3) < 1.0f);
  put(4096 + thread, warp_ballot(mine % 3 == 0));
  put(4224 + thread, warp_any(mine % 64 == 0));
  put(4352 + thread, uniform((int)(mine % 1000)));
  put(4480 + thread, highest_bit(mine >> thread % 32 | 1));
)"},
    {"ApproximateFunctions", R"(
  for (int i = 0; i < 16; ++i) {
    const float x = (float)(int)scrambled(thread * 16 + i) * (1.0f / 33554432.0f);  // -64 to 64
    put_float(thread * 48 + 3 * i, exp2_approximate(x));
    put_float(thread * 48 + 3 * i + 1, log2_approximate(x * x + 2.0f));
    put_float(thread * 48 + 3 * i + 2, reciprocal_approximate(x + 65.0f));
  }
)",
     0x1p-21},
    {"ExactEnds", R"(
  const float ends[6] = {minus_infinity, -minus_infinity, 0.0f, -200.0f, 1.0f, -3.0f};
  if (thread < 6) {
    put_float(thread, exp2_approximate(ends[thread]));
    put_float(8 + thread, log2_approximate(absolute(ends[thread])));
    put_float(16 + thread, reciprocal_approximate(ends[thread]));
    put_float(24 + thread, maximum(ends[thread], ends[5 - thread]));
    put_float(32 + thread, maximum(not_a_number, ends[thread]));
  }
)"},
    {"MatricesToRegisters", R"(
  for (int i = 0; i < 4; ++i) shared_store(base + (thread * 4 + i) * 4, scrambled(thread * 4 + i));
  block_barrier();
  u32 r[4];
  load_matrix_x4(r, base + thread * 16);
  for (int i = 0; i < 4; ++i) put(thread * 4 + i, r[i]);
  load_matrix_x4_transposed(r, base + (127 - thread) * 16);
  for (int i = 0; i < 4; ++i) put(512 + thread * 4 + i, r[i]);
)"},
    {"RegistersToMatrices", R"(
  const u32 a = scrambled(thread), b = scrambled(thread + 128), c = scrambled(thread + 256), d = scrambled(thread + 384);
  store_matrix_x4(base + thread * 16, a, b, c, d);
  store_matrix_x4_transposed(base + 2048 + (thread ^ 5) * 16, a, b, c, d);
  block_barrier();
  for (int i = 0; i < 8; ++i) put(thread * 8 + i, shared_load(base + (thread * 8 + i) * 4));
)"},
    {"CopiesWithFill", R"(
  for (int i = 0; i < 4; ++i) shared_store(base + (thread * 4 + i) * 4, -1);
  block_barrier();
  copy_async_16(base + thread * 16, (const char*)p.forward.k.data + thread * 16, thread % 3 ? 16 : 0);
  copy_async_commit();
  copy_async_wait<0>();
  block_barrier();
  for (int i = 0; i < 4; ++i) put(thread * 4 + i, shared_load(base + (thread * 4 + i) * 4));
)"},
    {"MatrixProduct", R"(
  const int* q = (const int*)p.forward.q.data;
  u32 a[4];
  for (int i = 0; i < 4; ++i) a[i] = global_load(q + thread * 8 + i);
  float d[4], e[4] = {0.5f, 1.0f, -2.0f, 4.0f};
  matrix_multiply_first(d, a, global_load(q + thread * 8 + 4), global_load(q + thread * 8 + 5));
  matrix_multiply(e, a, global_load(q + thread * 8 + 6), global_load(q + thread * 8 + 7));
  for (int i = 0; i < 4; ++i) {
    put_float(thread * 8 + i, d[i]);
    put_float(thread * 8 + 4 + i, e[i]);
  }
)"},
    {"BoxesSwizzledAndFilled", R"(
  begin_barrier();
  if (thread == 0) {
    barrier_arrive_expecting(base, 2 * 8192 + 8192);
    tensor_load(base + 1024, &p.q_map, base, 64, 0, 0, 0);
    tensor_load(base + 1024 + 8192, &p.q_map, base, 0, 100, 0, 0);   // 36 of 64 rows lie beyond the end
    tensor_load(base + 1024 + 16384, &p.k_map, base, 96, -5, 0, 0);  // so do 5 rows before the first and 32 columns
  }
  barrier_wait(base, 0);
  for (int i = 0; i < 48; ++i) put(thread * 48 + i, shared_load(base + 1024 + (thread * 48 + i) * 4));
)"},
    {"BulkCopy", R"(
  begin_barrier();
  if (thread == 0) {
    barrier_arrive_expecting(base, 4096);
    bulk_load(base + 1024, p.forward.v.data, 4096, base);
  }
  barrier_wait(base, 0);
  for (int i = 0; i < 8; ++i) put(thread * 8 + i, shared_load(base + 1024 + (thread * 8 + i) * 4));
)"},
    {"PhasesOfABarrier", R"(
  if (thread == 0) barrier_initialize(base, 4);
  fence_barrier_initialization();
  block_barrier();
  barrier_wait(base, 1);
  block_barrier();
  for (int phase = 0; phase < 5; ++phase) {
    if (thread % 32 == 0) barrier_arrive(base);
    barrier_wait(base, phase % 2);
    put(thread * 8 + phase, phase);
    block_barrier();  // nobody may miss a phase of the same parity
  }
  shared_store(base + 1024 + thread * 4, (int)scrambled(thread));
  put(thread * 8 + 6, shared_load_first_lane(base + 1024 + thread * 4));
)"},
    {"ScoresOfAWarpgroup", R"(
  begin_barrier();
  if (thread == 0) load_panels(p, base);
  barrier_wait(base, 0);
  float scores[32];
  multiply_query_keys(scores, (base + 1024) / 16 | 1 << 16, (base + 1024 + 16384) / 16 | 1 << 16);
  wait_scores<0>(scores);
  for (int i = 0; i < 32; ++i) put_float(thread * 32 + i, scores[i]);
)"},
    {"OutputOfAWarpgroup", R"(
  begin_barrier();
  if (thread == 0) load_panels(p, base);
  barrier_wait(base, 0);
  const int* q = (const int*)p.forward.q.data;
  u32 probabilities[16];
  float output[64];
  for (int i = 0; i < 16; ++i) probabilities[i] = global_load(q + thread * 16 + i);
  for (int i = 0; i < 64; ++i) output[i] = (float)(i - 32);
  multiply_probabilities_values(output, probabilities, (base + 1024 + 16384) / 16 | 8192 / 16 << 16);
  wait_output(output, probabilities);
  for (int i = 0; i < 64; ++i) put_float(thread * 64 + i, output[i]);
)"},
    {"BoxesForACluster", R"(
  const int rank = cluster_rank();
  begin_barrier();
  cluster_barrier();
  if (thread == 0) {
    barrier_arrive_expecting(base, 2 * 8192);
    tensor_load_multicast(base + 1024 + rank * 8192, &p.q_map, base, rank * 64, 10 * rank, 0, 0, 3);
  }
  barrier_wait(base, 0);
  for (int i = 0; i < 32; ++i) put(rank * 4096 + thread * 32 + i, shared_load(base + 1024 + (thread * 32 + i) * 4));
  cluster_barrier();
)",
     0, 2},
    {"ArrivalsFromACluster", R"(
  const int rank = cluster_rank();
  if (thread == 0) barrier_initialize(base, 10);  // of four warps of each block, and twice of the first
  fence_barrier_initialization();
  cluster_barrier();
  if (thread % 32 < 2) barrier_arrive_in_cluster(map_to_block(base, thread % 32));
  if (rank == 0 && thread < 2) {
    barrier_arrive_in_cluster(map_to_block(base, thread));
    barrier_arrive_in_cluster(map_to_block(base, thread));
  }
  barrier_wait(base, 0);
  put(rank * 128 + thread, rank * 1000 + block_index() * 100 + grid_blocks());
  cluster_barrier();
)",
     0, 2},
};

const char* const kernel_head = R"(
__device__ __forceinline__ u32 scrambled(u32 x) {
  x = (x + 1) * 2654435761u;
  x ^= x >> 15;
  x *= 2246822519u;
  return x ^ x >> 13;
}

__device__ __forceinline__ float as_float(u32 bits) {
  union { u32 word; float number; } both;
  both.word = bits;
  return both.number;
}

__device__ __forceinline__ void load_panels(const HopperForwardParameters& p, u32 base) {
  barrier_arrive_expecting(base, 2 * 8192 + 2 * 8192);
  for (int panel = 0; panel < 2; ++panel) {
    tensor_load(base + 1024 + panel * 8192, &p.q_map, base, panel * 64, 0, 0, 0);
    tensor_load(base + 1024 + 16384 + panel * 8192, &p.k_map, base, panel * 64, 0, 0, 0);
  }
}

extern "C" __global__ void __launch_bounds__(128, 1)
    attention_forward(const __grid_constant__ HopperForwardParameters p) {
  const int thread = thread_index();
  const u32 base = shared_base();
  int* const out = (int*)p.forward.out.data;
  const auto put = [&](int at, u32 word) { global_store(out + at, (int)word); };
  const auto put_float = [&](int at, float value) { global_store_float((float*)out + at, value); };
  const auto begin_barrier = [&] {
    if (thread == 0) barrier_initialize(base, 1);
    fence_barrier_initialization();
    block_barrier();
  };
)";

std::string declarations(const char* file, Backend backend) {
  for (int i = 0; i < embedded_template_count; ++i) {
    if (embedded_templates[i].file != file) continue;
    std::string text;
    for (const TemplateItem& item : parse_template(embedded_templates[i].text, backend))
      text += item.text + "\n";
    return text;
  }
  throw std::runtime_error(std::string("no template ") + file);
}

std::string whole(const char* file) {
  for (int i = 0; i < embedded_template_count; ++i)
    if (embedded_templates[i].file == file) return std::string(embedded_templates[i].text) + "\n";
  throw std::runtime_error(std::string("no template ") + file);
}

Source source_of(const PrimitiveCase& test, const AttentionSpec& spec, const Schedule& schedule,
                 Backend backend) {
  Source source;
  if (backend == Backend::simulator) source.text += whole("primitives/simulator_interface.cuh");
  source.text += whole(backend == Backend::device ? "primitives/device_prelude.cuh"
                                                  : "primitives/simulator_prelude.cuh");
  source.text += declarations("common.cuh", backend) + declarations("forward_parameters.cuh", backend) +
                 declarations("primitives/primitives.cuh", backend) +
                 declarations("primitives/element_bf16.cuh", backend);
  source.text += declarations("sm90/parameters.cuh", backend) + declarations("primitives/sm90.cuh", backend) +
                 declarations("primitives/sm90_bulk.cuh", backend) +
                 declarations("primitives/cluster.cuh", backend);
  for (const TemplateItem& item : warpgroup_products(spec, schedule, backend))
    source.text += item.text + "\n";
  source.text += kernel_head;
  source.text += std::string(test.body) + "}\n";
  if (backend == Backend::simulator)
    source.text +=
        "extern \"C\" void attention_forward_bind(const SimulatorInterface* interface) { simulator = "
        "interface; }\n"
        "extern \"C\" void attention_forward_thunk(const void* parameters) {\n  attention_forward(*(const "
        "HopperForwardParameters*)parameters);\n}\n";
  source.file_name = "primitives.cu";
  source.kernel_name = "attention_forward";
  source.threads = 128;
  source.shared_memory = 40 * 1024;
  return source;
}

std::vector<uint32_t> run_on(Device& device, const PrimitiveCase& test) {
  const AttentionSpec spec =
      parse_spec("{head_dim: 128, blocks: {family: sm90, m: 128, n: 64, stages: 1, cluster: " +
                     std::to_string(test.cluster) + "}}",
                 "test");
  const Schedule schedule = choose_schedule(spec, target_by_name("sm_90a"));
  KernelCache cache({.directory = {}, .disk = false});
  CacheResult from;
  const auto kernel =
      device.load(spec, schedule, source_of(test, spec, schedule, device.backend()), cache, from);

  std::vector<uint16_t> data(rows * head_dim);
  for (size_t i = 0; i < data.size(); ++i)
    store_element(data.data(), DataType::bf16, i, (static_cast<int>(i * 7919 % 33) - 16) / 8.0);
  const size_t bytes = data.size() * 2;
  void* buffers[4];
  for (int i = 0; i < 4; ++i) {
    buffers[i] = device.allocate(bytes);
    if (i < 3) device.upload(buffers[i], data.data(), bytes);
  }
  device.fill(buffers[3], 0xcd, bytes);
  const auto view = [&](int i) {
    return TensorView{
        .data = buffers[i], .dtype = DataType::bf16, .shape = {1, rows, 1, head_dim}, .strides = {}};
  };
  const ForwardArguments arguments = {.q = view(0), .k = view(1), .v = view(2), .out = view(3)};
  kernel->launch(nullptr, prepare_launch(spec, schedule, arguments), arguments, {});
  device.synchronize();
  std::vector<uint32_t> out(words);
  device.download(out.data(), buffers[3], bytes);
  for (void* buffer : buffers) device.free(buffer);
  return out;
}

void PrintTo(const PrimitiveCase& test, std::ostream* to) {
  *to << test.name;
}

class GpuPrimitives : public testing::TestWithParam<PrimitiveCase> {};

TEST_P(GpuPrimitives, EqualTheirEmulation) {
  const PrimitiveCase& test = GetParam();
  const std::vector<uint32_t> emulated = run_on(*make_simulator_device({}, "sm_90a"), test);
  EXPECT_NE(emulated, std::vector<uint32_t>(words, 0xcdcdcdcd)) << "the kernel wrote nothing";
  if (std::string why; !cuda_device_available(&why)) GTEST_SKIP() << "no GPU to compare with: " << why;
  const auto device = make_cuda_device(0);
  if (!device->target().wgmma) GTEST_SKIP() << "not a Hopper GPU";
  const std::vector<uint32_t> real = run_on(*device, test);
  int differences = 0;
  for (int i = 0; i < words && differences < 5; ++i) {
    float a, b;
    std::memcpy(&a, &real[i], 4);
    std::memcpy(&b, &emulated[i], 4);
    const bool close =
        test.tolerance > 0 && std::abs(a - b) <= test.tolerance * std::max(std::abs(b), 0x1p-126f);
    if (real[i] == emulated[i] || close) continue;
    ++differences;
    ADD_FAILURE() << "word " << i << ": the GPU gives " << std::hex << real[i] << ", the emulation "
                  << emulated[i] << std::dec << " (" << a << ", " << b << ")";
  }
}

INSTANTIATE_TEST_SUITE_P(Each, GpuPrimitives, testing::ValuesIn(cases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tilewright
