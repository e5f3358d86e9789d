#include "runtime/arguments.h"

#include <cmath>
#include <initializer_list>
#include <string>

#include "codegen/error.h"
#include "codegen/spec_rules.h"
#include "runtime/block_list.h"
#include "runtime/dropout.h"
#include "runtime/packed.h"

namespace tilewright {
namespace {

constexpr int batch = 0, sequence = 1, head = 2, element = 3;  // dimensions of q, k, v and out
constexpr const char* dimension_names[] = {"batch", "sequence", "head", "head_dim"};
constexpr const char* lse_dimension_names[] = {"batch", "head", "sequence"};
constexpr int64_t alignment = 16;  // bytes: what one asynchronous copy moves

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorKind::usage, message);
}

std::string text(int64_t value) {
  return std::to_string(value);
}

std::string pointer_text(const void* pointer) {
  char buffer[2 + 16 + 1];
  std::snprintf(buffer, sizeof buffer, "%p", pointer);
  return buffer;
}

bool has_elements(const TensorView& view) {
  for (int64_t size : view.shape)
    if (size == 0) return false;
  return true;
}

void check_rank_and_type(const char* name, const TensorView& view, size_t rank, const char* dimensions,
                         DataType type) {
  if (view.shape.size() != rank)
    refuse(std::string(name) + " has " + text(view.shape.size()) + " dimensions, expected " + text(rank) +
           dimensions);
  if (!view.strides.empty() && view.strides.size() != rank)
    refuse(std::string(name) + " has " + text(view.strides.size()) + " strides, expected " + text(rank) +
           " or none (contiguous)");
  if (view.dtype != type)
    refuse(std::string(name) + " is " + std::string(name_of(view.dtype)) + ", the spec says " +
           std::string(name_of(type)));
}

void check_size(const char* name, const char* dimension, int64_t size, int64_t expected, const char* why) {
  if (size != expected)
    refuse(std::string(name) + ": " + dimension + " dimension is " + text(size) + ", expected " +
           text(expected) + " (" + why + ")");
}

void check_sizes_not_negative(const char* name, const TensorView& view, const char* const* dimensions) {
  for (size_t i = 0; i < view.shape.size(); ++i)
    if (view.shape[i] < 0)
      refuse(std::string(name) + ": " + dimensions[i] + " dimension is " + text(view.shape[i]) +
             ", expected at least 0");
}

/// The largest offset in elements must be countable: 2^62 leaves room for the element size.
void check_extent(const char* name, const TensorView& view, const int64_t* strides) {
  __int128 last = 0;
  for (size_t i = 0; i < view.shape.size(); ++i)
    last += static_cast<__int128>(view.shape[i] - 1) * strides[i];
  if (last >= (int64_t{1} << 59)) refuse(std::string(name) + ": its strides reach beyond 2^59 elements");
}

/// Distinct elements of an output must have distinct addresses. Sorted by stride, each dimension must step
/// over all that the smaller ones cover.
void check_no_overlap(const char* name, const TensorView& view, const int64_t* strides) {
  const int rank = static_cast<int>(view.shape.size());
  int order[4] = {0, 1, 2, 3};
  for (int i = 1; i < rank; ++i)
    for (int j = i; j > 0 && strides[order[j]] < strides[order[j - 1]]; --j)
      std::swap(order[j], order[j - 1]);
  int64_t covered = 1;
  for (int i = 0; i < rank; ++i) {
    const int dimension = order[i];
    if (view.shape[dimension] == 1) continue;
    if (strides[dimension] < covered)
      refuse(std::string(name) + ": its elements overlap: " + dimension_names[dimension] + " stride is " +
             text(strides[dimension]) + ", expected at least " + text(covered));
    covered += (view.shape[dimension] - 1) * strides[dimension];
  }
}

void check_memory(const AttentionSpec& spec, const char* name, const TensorView& view, bool output) {
  if (!has_elements(view)) return;
  int64_t strides[4];
  effective_strides(spec, view, strides);
  const int64_t bytes = size_of(view.dtype);
  if (!view.data) refuse(std::string(name) + ": data is null");
  if (reinterpret_cast<uintptr_t>(view.data) % alignment != 0)
    refuse(std::string(name) + ": data is at " + pointer_text(view.data) + ", expected a multiple of " +
           text(alignment) + " bytes");
  if (view.shape[element] != 1 && strides[element] != 1)
    refuse(std::string(name) + ": head_dim stride is " + text(strides[element]) +
           ", expected 1 (the last dimension must be contiguous)");
  for (int dimension : {batch, sequence, head}) {
    if (view.shape[dimension] == 1) continue;  // never stepped over, whatever it says
    const int64_t stride = strides[dimension];
    if (stride >= 0 && stride % (alignment / bytes) == 0) continue;
    refuse(std::string(name) + ": " + dimension_names[dimension] + " stride is " + text(stride) +
           (stride < 0 ? ", expected at least 0"
                       : " elements, expected a multiple of " + text(alignment / bytes) + " (" +
                             text(alignment) + " bytes)"));
  }
  check_extent(name, view, strides);
  if (output) check_no_overlap(name, view, strides);
}

void check_lse(const AttentionSpec& spec, const ForwardArguments& arguments) {
  if (!spec.lse) {
    if (arguments.lse) refuse("lse was given, but the spec does not say `lse: true`");
    return;
  }
  if (!arguments.lse) refuse("lse is missing: the spec says `lse: true`");
  check_rows("lse", *arguments.lse, arguments.q);
}

void check_scale(const AttentionSpec& spec, const ForwardArguments& arguments) {
  if (spec.softmax_scale_at_launch != arguments.softmax_scale.has_value())
    refuse(spec.softmax_scale_at_launch
               ? "softmax_scale is missing: the spec says `softmax_scale: launch`"
               : "softmax_scale was given, but the spec does not say `softmax_scale: launch`");
  const auto& [key, least, most, zero] = softmax_scale_rule;
  if (arguments.softmax_scale && !(*arguments.softmax_scale >= least && *arguments.softmax_scale <= most))
    refuse("softmax_scale is " + shortest_decimal(*arguments.softmax_scale) + ", expected " +
           shortest_decimal(least) + " to " + shortest_decimal(most));
}

void check_numbers_of_heads(const std::string& name, const TensorView& heads, const TensorView& q) {
  if (heads.shape.size() != 1)
    refuse(name + " has " + text(static_cast<int64_t>(heads.shape.size())) +
           " dimensions, expected 1 (heads)");
  check_size(name.c_str(), "head", heads.shape[0], q.shape[head], "that of q");
  if (!heads.strides.empty() && heads.shape[0] > 1 && heads.strides[0] != 1)
    refuse(name + ": stride is " + text(heads.strides[0]) + ", expected 1");
  if (heads.shape[0] > 0 && !heads.data) refuse(name + ": data is null");
  if (reinterpret_cast<uintptr_t>(heads.data) % size_of(heads.dtype) != 0)
    refuse(name + ": data is at " + pointer_text(heads.data) + ", expected a multiple of " +
           text(size_of(heads.dtype)) + " bytes");
}

void check_sinks(const AttentionSpec& spec, const ForwardArguments& arguments) {
  if (spec.sinks != arguments.sinks.has_value())
    refuse(spec.sinks ? "sinks is missing: the spec says `sinks: true`"
                      : "sinks was given, but the spec does not say `sinks: true`");
  if (!spec.sinks) return;
  const TensorView& sinks = *arguments.sinks;
  if (sinks.dtype != DataType::fp32 && sinks.dtype != spec.dtype.q)
    refuse("sinks is " + std::string(name_of(sinks.dtype)) + ", expected fp32 or " +
           std::string(name_of(spec.dtype.q)));
  check_numbers_of_heads("sinks", sinks, arguments.q);
}

void check_ranks_and_types(const AttentionSpec& spec, const ForwardArguments& arguments) {
  const bool packed = spec.layout == Layout::packed;
  const size_t rank = packed ? 3 : 4;
  const char* dimensions =
      packed ? " (rows of all sequences, heads, head_dim)" : " (batch, sequence, heads, head_dim)";
  check_rank_and_type("q", arguments.q, rank, dimensions, spec.dtype.q);
  check_rank_and_type("k", arguments.k, rank, dimensions, spec.dtype.kv);
  check_rank_and_type("v", arguments.v, rank, dimensions, spec.dtype.kv);
  check_rank_and_type("out", arguments.out, rank, dimensions, spec.dtype.out);
  if (packed && arguments.lse)
    check_rank_and_type("lse", *arguments.lse, 2, " (heads, rows of all sequences)", DataType::fp32);
}

}  // namespace

void check_rows(const char* name, const TensorView& rows, const TensorView& q) {
  check_rank_and_type(name, rows, 3, " (batch, heads, sequence)", DataType::fp32);
  check_sizes_not_negative(name, rows, lse_dimension_names);
  check_size(name, "batch", rows.shape[0], q.shape[batch], "that of q");
  check_size(name, "head", rows.shape[1], q.shape[head], "that of q");
  check_size(name, "sequence", rows.shape[2], q.shape[sequence], "that of q");
  if (!has_elements(rows)) return;
  if (!rows.data) refuse(std::string(name) + ": data is null");
  if (reinterpret_cast<uintptr_t>(rows.data) % sizeof(float) != 0)
    refuse(std::string(name) + ": data is at " + pointer_text(rows.data) +
           ", expected a multiple of 4 bytes");
  int64_t expected = 1;
  for (int i = 2; i >= 0; --i) {
    if (!rows.strides.empty() && rows.shape[i] != 1 && rows.strides[i] != expected)
      refuse(std::string(name) + ": " + lse_dimension_names[i] + " stride is " + text(rows.strides[i]) +
             ", expected " + text(expected) + " (" + name + " must be contiguous)");
    expected *= rows.shape[i];
  }
}

void check_heads(const char* name, const TensorView& heads, const TensorView& q) {
  if (heads.dtype != DataType::fp32)
    refuse(std::string(name) + " is " + std::string(name_of(heads.dtype)) + ", expected fp32");
  check_numbers_of_heads(name, heads, q);
}

void check_like(const AttentionSpec& spec, const char* name, const TensorView& view, const char* like_name,
                const TensorView& like, bool output) {
  check_rank_and_type(name, view, 4, " (batch, sequence, heads, head_dim)", like.dtype);
  check_sizes_not_negative(name, view, dimension_names);
  const std::string why = std::string("that of ") + like_name;
  for (int i : {batch, sequence, head, element})
    check_size(name, dimension_names[i], view.shape[i], like.shape[i], why.c_str());
  check_memory(spec, name, view, output);
}

TensorParameters tensor_parameters(const AttentionSpec& spec, const TensorView& view) {
  int64_t strides[4];
  effective_strides(spec, view, strides);
  // A size-1 dimension is never stepped over; 0 keeps odd strides out of the kernel.
  auto stride = [&](int dimension) -> long long {
    return view.shape[dimension] == 1 ? 0 : strides[dimension];
  };
  return {view.data, stride(batch), stride(sequence), stride(head)};
}

void effective_strides(const AttentionSpec& spec, const TensorView& view, int64_t* strides) {
  const size_t rank = view.shape.size();
  if (!view.strides.empty()) {
    for (size_t i = 0; i < rank; ++i) strides[i] = view.strides[i];
    return;
  }
  int order[4] = {0, 1, 2, 3};  // outermost first
  if (rank == 4 && spec.layout == Layout::bhsd) std::swap(order[1], order[2]);
  int64_t stride = 1;
  for (size_t i = rank; i-- > 0;) {
    strides[order[i]] = stride;
    // Saturates: check_extent then says so.
    if (__builtin_mul_overflow(stride, view.shape[order[i]], &stride)) stride = int64_t{1} << 62;
  }
}

int64_t span_bytes(const TensorView& view, const int64_t* strides) {
  if (!has_elements(view)) return 0;
  int64_t last = 0;
  for (size_t i = 0; i < view.shape.size(); ++i)
    if (view.shape[i] != 1) last += (view.shape[i] - 1) * strides[i];
  return (last + 1) * size_of(view.dtype);
}

void check_arguments(const AttentionSpec& spec, const ForwardArguments& given) {
  if (spec.pass == Pass::backward)
    refuse("these are arguments of the forward pass; the spec says `pass: backward`");
  const bool packed = spec.layout == Layout::packed;
  check_ranks_and_types(spec, given);
  check_sequence_arrays(spec, given);
  std::optional<ForwardArguments> batched;
  const ForwardArguments& arguments = packed ? batched.emplace(with_batch_of_one(given)) : given;
  const auto &q = arguments.q, &k = arguments.k, &v = arguments.v, &out = arguments.out;
  const struct {
    const char* name;
    const TensorView& view;
  } tensors[] = {{"q", q}, {"k", k}, {"v", v}, {"out", out}};
  for (const auto& [name, view] : tensors) check_sizes_not_negative(name, view, dimension_names);

  check_size("q", "head_dim", q.shape[element], spec.head_dim.qk, "the spec's head_dim.qk");
  check_size("k", "head_dim", k.shape[element], spec.head_dim.qk, "the spec's head_dim.qk");
  check_size("v", "head_dim", v.shape[element], spec.head_dim.v, "the spec's head_dim.v");
  check_size("out", "head_dim", out.shape[element], spec.head_dim.v, "the spec's head_dim.v");
  check_size("k", "batch", k.shape[batch], q.shape[batch], "that of q");
  check_size("v", "batch", v.shape[batch], q.shape[batch], "that of q");
  check_size("out", "batch", out.shape[batch], q.shape[batch], "that of q");
  if (q.shape[head] % spec.gqa_ratio != 0)
    refuse("q: head dimension is " + text(q.shape[head]) + ", expected a multiple of the spec's gqa_ratio " +
           text(spec.gqa_ratio));
  const int64_t kv_heads = q.shape[head] / spec.gqa_ratio;
  check_size("k", "head", k.shape[head], kv_heads, "q's divided by the spec's gqa_ratio");
  check_size("v", "head", v.shape[head], kv_heads, "q's divided by the spec's gqa_ratio");
  check_size("out", "head", out.shape[head], q.shape[head], "that of q");
  check_size("v", "sequence", v.shape[sequence], k.shape[sequence], "that of k");
  check_size("out", "sequence", out.shape[sequence], q.shape[sequence], "that of q");

  check_lse(spec, arguments);
  check_scale(spec, arguments);
  check_sinks(spec, arguments);
  check_expression_arguments(spec, arguments);
  check_block_list(spec, arguments);
  check_dropout(spec, arguments.dropout);
  for (const auto& [name, view] : tensors) check_memory(spec, name, view, &view == &out);
}

LaunchShape launch_shape(const ForwardArguments& arguments) {
  const auto &q = arguments.q.shape, &k = arguments.k.shape;
  if (arguments.cu_seqlens_q && q.size() == 3 && k.size() == 3) {
    const int64_t sequences = arguments.cu_seqlens_q->shape.empty() ? 0 : sequence_count(arguments);
    return mean_sequence({.batch = sequences, .heads = q[1], .seqlen_q = q[0], .seqlen_kv = k[0]});
  }
  if (q.size() != 4 || k.size() != 4) return {};
  return {.batch = q[batch], .heads = q[head], .seqlen_q = q[sequence], .seqlen_kv = k[sequence]};
}

PreparedLaunch prepare_launch(const AttentionSpec& spec, const Schedule& schedule,
                              const ForwardArguments& given) {
  check_arguments(spec, given);
  const bool packed = spec.layout == Layout::packed;
  std::optional<ForwardArguments> batched;
  const ForwardArguments& arguments = packed ? batched.emplace(with_batch_of_one(given)) : given;
  PreparedLaunch launch{};
  LaunchShape shape = launch_shape(arguments);
  if (packed) shape.batch = sequence_count(given);
  launch.plan = packed ? plan_packed_launch(schedule, shape) : plan_launch(spec, schedule, shape);
  const double scale = arguments.softmax_scale.value_or(spec.softmax_scale_at_launch ? 0 : spec.scale());
  launch.parameters = {
      .q = tensor_parameters(spec, arguments.q),
      .k = tensor_parameters(spec, arguments.k),
      .v = tensor_parameters(spec, arguments.v),
      .out = tensor_parameters(spec, arguments.out),
      .lse = arguments.lse ? static_cast<float*>(arguments.lse->data) : nullptr,
      .seqlen_q = static_cast<int>(shape.seqlen_q),
      .seqlen_kv = static_cast<int>(shape.seqlen_kv),
      .heads = static_cast<int>(shape.heads),
      .m_tiles = static_cast<int>(launch.plan.m_tiles),
      .scale = static_cast<float>(scale),
      .scale_log2 = static_cast<float>(scale * M_LOG2E),
      .query_starts = int32_numbers(arguments.cu_seqlens_q),
      .key_starts = int32_numbers(arguments.cu_seqlens_kv),
      .queries_used = int32_numbers(arguments.seqused_q),
      .keys_used = int32_numbers(arguments.seqused_kv),
      .sinks = arguments.sinks ? arguments.sinks->data : nullptr,
      .block_rows = nullptr,
      .block_columns = nullptr,
      .sequences = packed ? static_cast<int>(sequence_count(given)) : 0,
      .sink_bytes = arguments.sinks ? size_of(arguments.sinks->dtype) : 0,
      .block_entries = 0,
      .block_batch_stride = 0,
      .block_head_stride = 0,
      .dropout = dropout_parameters(arguments.dropout),
  };
  if (has_expressions(spec)) {
    launch.tables = prepare_tables(spec, schedule, shape, arguments);
    pack_expressions(spec, arguments, {launch.tables.tables, launch.tables.count}, launch.expressions);
  }
  set_block_list(arguments, launch.parameters);
  if (schedule.family == Family::sm90 && launch.plan.tiles > 0) {
    void* const stand_in = arguments.q.data;
    launch.q_map = describe_tensor_map(spec, "q", arguments.q, 64, stand_in, schedule.pack_group);
    launch.k_map = describe_tensor_map(spec, "k", arguments.k, schedule.block_n, stand_in);
    launch.v_map = describe_tensor_map(spec, "v", arguments.v, schedule.block_n, stand_in);
  }
  return launch;
}

}  // namespace tilewright
