#include "runtime/packed.h"

#include <algorithm>
#include <string>

#include "codegen/error.h"
#include "runtime/arguments.h"

namespace tilewright {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorKind::usage, message);
}

std::string text(int64_t value) {
  return std::to_string(value);
}

/// `count` int32 numbers, without gaps.
void check_array(const char* name, const TensorView& view, int64_t count, const char* why) {
  if (view.dtype != DataType::int32)
    refuse(std::string(name) + " is " + std::string(name_of(view.dtype)) + ", expected int32");
  if (view.shape.size() != 1)
    refuse(std::string(name) + " has " + text(static_cast<int64_t>(view.shape.size())) +
           " dimensions, expected 1");
  if (view.shape[0] != count)
    refuse(std::string(name) + " has " + text(view.shape[0]) + " elements, expected " + text(count) + " (" +
           why + ")");
  if (!view.strides.empty() && count > 1 && view.strides[0] != 1)
    refuse(std::string(name) + ": stride is " + text(view.strides[0]) + ", expected 1");
  if (count > 0 && !view.data) refuse(std::string(name) + ": data is null");
  if (reinterpret_cast<uintptr_t>(view.data) % sizeof(int32_t) != 0)
    refuse(std::string(name) + ": data is not aligned to 4 bytes");
}

TensorView with_one_in_front(const TensorView& view) {
  TensorView result = view;
  result.shape.insert(result.shape.begin(), 1);
  if (!view.strides.empty()) result.strides.insert(result.strides.begin(), 0);
  return result;
}

struct Rows {
  int64_t first, count;
};

Rows rows_of(const TensorView& starts, const std::optional<TensorView>& used, int64_t i, int64_t total) {
  const auto* numbers = static_cast<const int32_t*>(starts.data);
  const int64_t first = std::clamp<int64_t>(numbers[i], 0, total);
  int64_t count = std::clamp<int64_t>(numbers[i + 1], first, total) - first;
  if (used) count = std::clamp<int64_t>(static_cast<const int32_t*>(used->data)[i], 0, count);
  return {first, count};
}

TensorView rows_of(const AttentionSpec& spec, const TensorView& view, int64_t first, int64_t count) {
  TensorView part = view;
  int64_t strides[4];
  effective_strides(spec, view, strides);
  part.data = static_cast<char*>(view.data) + first * strides[1] * size_of(view.dtype);
  part.shape[1] = count;
  part.strides.assign(strides, strides + 4);
  return part;
}

/// Of a tensor [1, heads, rows], contiguous.
std::vector<float> rows_of_heads(const TensorView& view, int64_t first, int64_t count) {
  std::vector<float> rows;
  for (int64_t h = 0; h < view.shape[1]; ++h) {
    const float* from = static_cast<const float*>(view.data) + h * view.shape[2] + first;
    rows.insert(rows.end(), from, from + count);
  }
  return rows;
}

}  // namespace

void check_sequence_arrays(const AttentionSpec& spec, const ForwardArguments& arguments) {
  const struct {
    const char* name;
    const std::optional<TensorView>& view;
  } arrays[] = {{"cu_seqlens_q", arguments.cu_seqlens_q},
                {"cu_seqlens_kv", arguments.cu_seqlens_kv},
                {"seqused_q", arguments.seqused_q},
                {"seqused_kv", arguments.seqused_kv}};
  if (spec.layout != Layout::packed) {
    for (const auto& [name, view] : arrays)
      if (view)
        refuse(std::string(name) + " was given, but the spec's layout is " +
               std::string(name_of(spec.layout)) + "; only `layout: packed` takes it");
    return;
  }
  for (const auto& [name, view] : {arrays[0], arrays[1]})
    if (!view) refuse(std::string(name) + " is missing: the spec says `layout: packed`");
  const auto& starts = *arguments.cu_seqlens_q;
  const int64_t count = starts.shape.empty() ? 0 : starts.shape[0];
  if (starts.shape.size() == 1 && count < 1)
    refuse("cu_seqlens_q has no elements, expected one more than there are sequences");
  check_array("cu_seqlens_q", starts, count, "one more than there are sequences");
  check_array("cu_seqlens_kv", *arguments.cu_seqlens_kv, count, "as many as cu_seqlens_q");
  for (const auto& [name, view] : {arrays[2], arrays[3]})
    if (view) check_array(name, *view, count - 1, "the number of sequences");
}

ForwardArguments with_batch_of_one(const ForwardArguments& arguments) {
  ForwardArguments result = arguments;
  for (TensorView* view : {&result.q, &result.k, &result.v, &result.out}) *view = with_one_in_front(*view);
  if (result.lse) result.lse = with_one_in_front(*result.lse);
  return result;
}

BackwardArguments with_batch_of_one(const BackwardArguments& arguments) {
  BackwardArguments result = arguments;
  for (TensorView* view : {&result.q, &result.k, &result.v, &result.out, &result.lse, &result.d_out,
                           &result.dq, &result.dk, &result.dv})
    *view = with_one_in_front(*view);
  if (result.d_lse) result.d_lse = with_one_in_front(*result.d_lse);
  return result;
}

int64_t sequence_count(const ForwardArguments& arguments) {
  return arguments.cu_seqlens_q->shape[0] - 1;
}

std::vector<PackedSequence> packed_sequences(const ForwardArguments& arguments) {
  std::vector<PackedSequence> sequences;
  const bool has_batch = arguments.q.shape.size() == 4;
  const int64_t total_q = arguments.q.shape[has_batch], total_kv = arguments.k.shape[has_batch];
  for (int64_t i = 0; i < sequence_count(arguments); ++i) {
    const Rows queries = rows_of(*arguments.cu_seqlens_q, arguments.seqused_q, i, total_q);
    const Rows keys = rows_of(*arguments.cu_seqlens_kv, arguments.seqused_kv, i, total_kv);
    sequences.push_back({queries.first, queries.count, keys.first, keys.count});
  }
  return sequences;
}

ForwardArguments one_sequence(const AttentionSpec& spec, const ForwardArguments& batch_of_one,
                              const PackedSequence& sequence) {
  ForwardArguments part;
  part.q = rows_of(spec, batch_of_one.q, sequence.first_query, sequence.queries);
  part.out = rows_of(spec, batch_of_one.out, sequence.first_query, sequence.queries);
  part.k = rows_of(spec, batch_of_one.k, sequence.first_key, sequence.keys);
  part.v = rows_of(spec, batch_of_one.v, sequence.first_key, sequence.keys);
  part.softmax_scale = batch_of_one.softmax_scale;
  part.sinks = batch_of_one.sinks;
  part.scalars = batch_of_one.scalars;
  part.tensors = batch_of_one.tensors;
  part.dropout = batch_of_one.dropout;
  return part;
}

OneBackward one_sequence(const AttentionSpec& spec, const BackwardArguments& batch_of_one,
                         const PackedSequence& sequence) {
  OneBackward one;
  one.arguments = batch_of_one;
  BackwardArguments& part = one.arguments;
  for (TensorView* view : {&part.q, &part.out, &part.d_out, &part.dq})
    *view = rows_of(spec, *view, sequence.first_query, sequence.queries);
  for (TensorView* view : {&part.k, &part.v, &part.dk, &part.dv})
    *view = rows_of(spec, *view, sequence.first_key, sequence.keys);
  const auto copy = [&](TensorView& view, std::vector<float>& rows) {
    rows = rows_of_heads(view, sequence.first_query, sequence.queries);
    view = {rows.data(), DataType::fp32, {1, view.shape[1], sequence.queries}, {}};
  };
  copy(part.lse, one.lse);
  if (part.d_lse) copy(*part.d_lse, one.d_lse);
  for (auto* array : {&part.cu_seqlens_q, &part.cu_seqlens_kv, &part.seqused_q, &part.seqused_kv})
    array->reset();
  return one;
}

}  // namespace tilewright
