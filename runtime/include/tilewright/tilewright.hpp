// The C++ interface: ask a Runtime for a kernel by spec, launch it on a stream.
//
//   tilewright::Runtime runtime;
//   auto kernel = runtime.kernel(tilewright::load_spec("specs/llama-3-8b-prefill.yaml"));
//   kernel->launch(stream, {.q = q, .k = k, .v = v, .out = out});
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/emit.h"
#include "codegen/error.h"
#include "codegen/schedule.h"
#include "codegen/shape_bucket.h"
#include "codegen/spec.h"
#include "codegen/target.h"

#pragma GCC visibility push(default)  // exported by libtilewright.so
namespace tilewright {

/// Reads and parses a spec file. Throws SpecError, or Error(environment) if the file cannot be read.
AttentionSpec load_spec(const std::filesystem::path& file);

/// A tensor that the caller owns. Always given in the order batch, sequence, heads, head_dim, whatever the
/// layout in memory: the strides (in elements) say where things are. LSE is rank 3: batch, heads, sequence.
/// With layout packed there is no batch: rank 3 is rows of all sequences, heads, head_dim; LSE is heads,
/// rows.
struct TensorView {
  void* data = nullptr;
  DataType dtype = DataType::bf16;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // empty: contiguous in the order of the spec's layout
};

/// `dropout: true`: each probability is dropped with `rate`, 0 <= rate < 1, and the others are scaled by 1 /
/// (1 - rate); LSE and the softmax's denominator are those without dropout. Equal seed and offset drop the
/// same places, whatever the GPU and the schedule; the backward pass takes what the forward pass had.
struct Dropout {
  double rate = 0;
  uint64_t seed = 0;
  uint64_t offset = 0;  // one for each use of a seed
};

/// Places in the matrix of scores. Heads count through all batches: batch * heads + head. With layout packed
/// the batch is the sequence, and queries and keys count from its first.
struct DropoutRange {
  int64_t head = 0, heads = 1;
  int64_t query = 0, queries = 0;
  int64_t key = 0, keys = 0;
};

/// Which probabilities of the range kernels keep, 1, and which they drop, 0: [heads][queries][keys]. On the
/// CPU, for tests. Throws Error(usage) for a rate or range that cannot be.
std::vector<uint8_t> dropout_mask(const Dropout& dropout, const DropoutRange& range);

struct ForwardArguments {
  TensorView q, k, v, out;
  std::optional<TensorView> lse;  // required when the spec says `lse: true`, refused otherwise
  std::optional<double>
      softmax_scale;  // required when the spec says `softmax_scale: launch`, refused otherwise

  /// Layout packed: int32 arrays on the device. Sequence i is rows cu_seqlens[i] to cu_seqlens[i + 1] - 1, so
  /// they hold one number more than there are sequences. Rows of no sequence are neither read nor written.
  std::optional<TensorView> cu_seqlens_q, cu_seqlens_kv;
  /// Optional with layout packed: how many of each sequence's rows count, from its first on.
  std::optional<TensorView> seqused_q, seqused_kv;
  /// `sinks: true`: a logit for each query head, fp32 or of q's type.
  std::optional<TensorView> sinks;

  /// A value for each of the spec's `scalars`; those of type int must be integers of 32 bits.
  std::map<std::string, double> scalars;
  /// A tensor for each of the spec's `tensors`, and `bias` [batch, head, q, kv] of q's type for `bias: true`.
  /// Each dimension has its full extent or 1, which is broadcast; any strides, also of the last dimension.
  std::map<std::string, TensorView> tensors;
  /// `mask.blocks`: which blocks of keys each block of m queries may see, int32 on the device. The numbers of
  /// those blocks, each once, are block_columns[block_rows[b, h, i]] to block_columns[block_rows[b, h, i + 1]
  /// - 1]: from low to high is fastest. block_rows: [batch or 1, heads or 1, blocks of queries + 1];
  /// block_columns: rank 1.
  std::optional<TensorView> block_rows, block_columns;
  std::optional<Dropout> dropout;  // required when the spec says `dropout: true`, refused otherwise

  /// Where Kernel::workspace_size says more than 0 (masks that look up by kv): device memory for this launch
  /// alone, aligned to 16 bytes, whatever it holds.
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  /// The workspace is as the last launch of this kernel with the same lengths, heads and batch left it, and
  /// the tensors that the mask looks up, and its scalars, have not changed since: its tables are used once
  /// more. Where that is not so the result is wrong.
  bool tensors_unchanged = false;
};

/// The backward pass: from what the forward pass took and gave, and the gradient of its output, the gradients
/// of its inputs. dK and dV are sums over the query heads that share a KV head.
struct BackwardArguments {
  TensorView q, k, v, out, lse;         // lse is always needed
  TensorView d_out;                     // as out
  TensorView dq, dk, dv;                // written; as q, k, v
  std::optional<TensorView> d_lse;      // the gradient of LSE, as lse; allowed when the spec says `lse: true`
  std::optional<double> softmax_scale;  // as the forward pass had it
  std::optional<TensorView> sinks;      // as the forward pass had them
  std::map<std::string, double> scalars;      // the same
  std::map<std::string, TensorView> tensors;  // the same
  std::optional<TensorView> d_sinks;  // written: fp32, of each query head; may be given with `sinks: true`
  /// `bias_gradient: true`: fp32, of the bias's shape, contiguous. The bias's gradient is added to what it
  /// holds, summed over dimensions of 1.
  std::optional<TensorView> d_bias;
  void* workspace =
      nullptr;  // device memory for this launch alone, aligned to 16 bytes; needs no initial values
  size_t workspace_bytes = 0;      // at least Kernel::workspace_size of the launch's shape
  std::optional<Dropout> dropout;  // as the forward pass had it
  /// Layout packed: as the forward pass had them. Rows of no sequence are neither read nor written.
  std::optional<TensorView> cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv;
};

/// Where a kernel came from when it was asked for.
enum class CacheResult { memory, bundle, disk, compiled };

/// What the compiler said, kept with the kernel.
struct CompileReport {
  std::string compiler;     // "NVRTC 13.0", "clang 19.1.7", "system C++ compiler"
  std::string command;      // options, as one would type them
  double milliseconds = 0;  // of the compile that made it, also when it came from disk
  int registers = 0;        // per thread; 0 on the simulator
  int spill_bytes = 0;      // stores + loads
  int shared_memory = 0;    // bytes, dynamic
  std::vector<std::string>
      notes;  // the compiler's warnings: C75xx means wgmma serialised or setmaxnreg ignored
};

/// A stream of the driver API (CUstream); null is the default stream. The simulator ignores it and finishes
/// before launch returns.
using Stream = void*;

/// One compiled form of a kernel: what launches of some shapes run.
struct KernelVariant {
  Schedule schedule;
  Source source;
  CompileReport report;
  std::vector<std::string_view> buckets;  // names of the shape buckets that it serves
};

/// How one launch shares the device with others. No kernel is compiled for it.
struct LaunchOptions {
  /// The kernel may start before the launch before it on the stream has finished: its blocks get ready, and
  /// wait for that launch's end before they read or write anything of the caller's. Kernels of the sm80
  /// family start afterwards, as without it.
  bool programmatic_dependent_launch = false;
  /// Multiprocessors left to others by launches whose blocks share tiles (the sm90 family, with more tiles
  /// than multiprocessors). Others start a block for each tile, and the device places those.
  int sm_margin = 0;
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual const AttentionSpec& spec() const = 0;
  virtual const Target& target() const = 0;

  /// One, or a few where the best schedule depends on lengths and batch; all are compiled and loaded.
  virtual std::span<const KernelVariant> variants() const = 0;
  /// The one that a launch of this shape runs.
  virtual const KernelVariant& variant_for(const LaunchShape& shape) const = 0;
  /// Of the variant for long sequences.
  const Schedule& schedule() const { return long_variant().schedule; }
  const Source& source() const { return long_variant().source; }
  const CompileReport& report() const { return long_variant().report; }

  /// Starts the kernel. Neither allocates on the device, synchronises nor compiles; thread-safe; capturable.
  /// Throws Error(usage) for arguments that do not fit the spec, Error(device) if the driver or the simulator
  /// fails.
  virtual void launch(Stream stream, const ForwardArguments& arguments,
                      const LaunchOptions& options = {}) const = 0;
  /// The same for `pass: backward`: all kernels of the pass, one after the other on the stream.
  virtual void launch_backward(Stream stream, const BackwardArguments& arguments) const = 0;

  /// Bytes that a launch of this shape needs as its workspace: linear in the lengths, the same with and
  /// without a GPU. The forward pass needs some where its mask looks up by kv, 8 bytes a tile and look-up.
  /// Layout packed: `shape` holds the number of sequences, and the rows of all of them together.
  int64_t workspace_size(const LaunchShape& shape) const {
    const LaunchShape one = spec().layout == Layout::packed ? mean_sequence(shape) : shape;
    return tilewright::workspace_size(spec(), variant_for(one).schedule, shape);
  }

 private:
  virtual const KernelVariant& long_variant() const = 0;
};

struct DeviceChoice {
  enum class Kind {
    automatic,
    cuda,
    simulator
  } kind = Kind::automatic;  // automatic: CUDA if there is a device
  int ordinal = 0;
};

enum class SimulatorCompiler { automatic, llvm, system };  // automatic: the LLVM plugin if it loads, else g++

struct SimulatorOptions {
  SimulatorCompiler compiler = SimulatorCompiler::automatic;
  /// 0: asynchronous work lands early, 1: as late as allowed, others: drawn. With 1, blocks of the sm90
  /// family compute one tile each instead of sharing them.
  uint64_t seed = 0;
  bool check_races = true;
};

struct RuntimeOptions {
  DeviceChoice device;
  std::optional<std::filesystem::path> cache_directory;  // absent: TILEWRIGHT_CACHE_DIR, XDG_CACHE_HOME, HOME
  bool disk_cache = true;
  /// Files of `tilewright precompile`, asked before the cache, those of TILEWRIGHT_BUNDLES after them. The
  /// runtime's constructor throws Error(environment) for one that cannot be used.
  std::vector<std::filesystem::path> bundles;
  /// false: a kernel for a GPU that is in no bundle and no cache is an error. So is it with
  /// TILEWRIGHT_COMPILING=0.
  bool compiling = true;
  /// Tuning records that are asked before those that ship. Absent: TILEWRIGHT_RECORDS_DIR, else the user's
  /// data directory.
  std::optional<std::filesystem::path> records_directory;
  bool tuning_records = true;  // false: schedules without them, by the model and the default rule
  SimulatorOptions simulator;
  std::string simulated_target = "sm_80";  // what the simulator stands for
};

/// What runs kernels: a CUDA GPU or the simulator. Internal (runtime/device.h).
class Device;

class Runtime {
 public:
  explicit Runtime(RuntimeOptions options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  bool is_simulator() const;
  const Target& target() const;
  std::string device_name() const;

  /// The kernel for a spec: from memory, from a bundle, from disk, or compiled now. One compile per key
  /// across threads and processes. `from` (if given) receives where it came from. Throws
  /// SpecError/Error/CompileError.
  std::shared_ptr<const Kernel> kernel(const AttentionSpec& spec, CacheResult* from = nullptr);

  /// The same from memory alone: no compile, no load, no call to the driver, so that it may be asked for
  /// while a stream is captured. Throws Error(usage) for a spec whose kernel has not been asked for before.
  std::shared_ptr<const Kernel> prepared_kernel(const AttentionSpec& spec) const;

  /// Compiles and loads ahead of the first launch. All specs are tried: the error names each that has no
  /// kernel.
  void prepare(std::span<const AttentionSpec> specs);

  /// Waits until everything launched on the device has finished. Throws Error(device) if any of it failed.
  void synchronize();

  /// For runtime/device_buffer.h.
  Device& device() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Compiles without a device: spec to machine code for any target, through the same cache.
struct CompiledKernel {
  Source source;
  Schedule schedule;
  std::string image;  // cubin, or PTX when asked for
  CompileReport report;
  CacheResult from = CacheResult::compiled;
};
CompiledKernel compile(const AttentionSpec& spec, const Schedule& schedule, const Target& target,
                       const RuntimeOptions& options = {}, bool as_ptx = false);
/// With the schedule for long sequences.
CompiledKernel compile(const AttentionSpec& spec, const Target& target, const RuntimeOptions& options = {},
                       bool as_ptx = false);

std::string_view version();

}  // namespace tilewright
#pragma GCC visibility pop
