#include "tests/support/packed_backward_case.h"

#include "runtime/packed.h"

namespace tilewright::test {
namespace {

void expect_untouched(const GuardedTensor& tensor, const std::string& poison, const std::vector<bool>& live,
                      const std::string& place) {
  const std::string bytes = tensor.live_bytes();
  const size_t row_bytes = live.empty() ? 0 : bytes.size() / live.size();
  for (size_t row = 0; row < live.size(); ++row) {
    if (live[row]) continue;
    EXPECT_EQ(bytes.compare(row * row_bytes, row_bytes, poison, row * row_bytes, row_bytes), 0)
        << place << ": row " << row << " belongs to no sequence and was written";
  }
}

}  // namespace

BackwardResult run_packed_backward(Runtime& runtime, const PackedCase& packed, int launches) {
  BackwardResult result;
  result.spec = parse_spec(packed.spec, "spec");
  const AttentionSpec& spec = result.spec;
  const int64_t heads = packed.heads_kv * spec.gqa_ratio;
  std::vector<int32_t> starts_q = starts_of(packed.lengths_q), starts_kv = starts_of(packed.lengths_kv);
  const int64_t rows = starts_q.back() + packed.rows_behind, keys = starts_kv.back() + packed.rows_behind;
  if (!packed.starts_q.empty()) starts_q = packed.starts_q;
  if (!packed.starts_kv.empty()) starts_kv = packed.starts_kv;
  const auto make = [&](int64_t length, int64_t tensor_heads, int64_t columns) {
    return GuardedTensor(spec.dtype.q, {length, tensor_heads, columns}, {tensor_heads * columns, columns, 1});
  };
  const int qk = spec.head_dim.qk, v = spec.head_dim.v;
  result.q = make(rows, heads, qk), result.dq = make(rows, heads, qk);
  result.k = make(keys, packed.heads_kv, qk), result.dk = make(keys, packed.heads_kv, qk);
  result.v = make(keys, packed.heads_kv, v), result.dv = make(keys, packed.heads_kv, v);
  result.out = make(rows, heads, v), result.d_out = make(rows, heads, v);
  result.lse = GuardedTensor(DataType::fp32, {heads, rows}, {rows, 1});
  result.d_lse = GuardedTensor(DataType::fp32, {heads, rows}, {rows, 1});

  const std::vector<int32_t> used_q(packed.used_q.begin(), packed.used_q.end()),
      used_kv(packed.used_kv.begin(), packed.used_kv.end());
  const DeviceArray arrays[] = {
      {runtime, starts_q}, {runtime, starts_kv}, {runtime, used_q}, {runtime, used_kv}};
  GuardedTensor* const tensors[] = {&result.q,     &result.k,  &result.v,  &result.out, &result.lse,
                                    &result.d_out, &result.dq, &result.dk, &result.dv,  &result.d_lse};
  ExpressionData expressions({.scalars = packed.scalars, .tensors = packed.tensors}, spec);
  std::unique_ptr<DeviceBuffer> buffers[11];
  const auto arguments_on = [&](bool host) {
    BackwardArguments made;
    TensorView* const views[] = {&made.q,     &made.k,  &made.v,  &made.out, &made.lse,
                                 &made.d_out, &made.dq, &made.dk, &made.dv};
    for (int i = 0; i < 9; ++i)
      *views[i] = host ? tensors[i]->host_view() : tensors[i]->device_view(runtime, buffers[i]);
    if (spec.lse)
      made.d_lse = host ? result.d_lse.host_view() : result.d_lse.device_view(runtime, buffers[9]);
    if (spec.softmax_scale_at_launch) made.softmax_scale = 0.3;
    if (spec.dropout) made.dropout = Dropout{.rate = 0.3, .seed = packed.seed, .offset = 1};
    const auto array = [&](int i) { return host ? arrays[i].host() : arrays[i].device(); };
    expressions.give(host ? nullptr : &runtime, made);
    made.cu_seqlens_q = array(0), made.cu_seqlens_kv = array(1);
    if (!used_q.empty()) made.seqused_q = array(2);
    if (!used_kv.empty()) made.seqused_kv = array(3);
    return made;
  };
  std::unique_ptr<DeviceBuffer> sink_buffers[2];
  if (spec.sinks) {
    result.sinks = GuardedTensor(DataType::fp32, {heads}, {1});
    result.d_sinks = GuardedTensor(DataType::fp32, {heads}, {1});
    for (int64_t h = 0; h < heads; ++h) result.sinks.set(h, 0.5 * static_cast<double>(h));
  }
  BackwardArguments host = arguments_on(true);
  if (spec.sinks) host.sinks = result.sinks.host_view(), host.d_sinks = result.d_sinks.host_view();
  const std::vector<PackedSequence> sequences = packed_sequences(forward_part(host));
  const auto live_q = live_rows(sequences, false, rows), live_kv = live_rows(sequences, true, keys);
  std::mt19937_64 random(packed.seed);
  fill_packed(result.q, 'q', packed, live_q, random);
  fill_packed(result.k, 'k', packed, live_kv, random);
  fill_packed(result.v, 'v', packed, live_kv, random);
  fill_packed(result.d_out, 'd', packed, live_q, random);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < result.d_lse.elements(); ++i)
    if (live_q[i % rows]) result.d_lse.set(i, normal(random));
  const ReferenceResult forward = plain_forward(forward_spec(spec), forward_part(host));
  for (size_t i = 0; i < forward.out.size(); ++i)
    if (live_q[i / (heads * v)]) result.out.set(static_cast<int64_t>(i), forward.out[i]);
  for (size_t i = 0; i < forward.lse.size(); ++i)
    if (live_q[i % rows]) result.lse.set(static_cast<int64_t>(i), forward.lse[i]);

  const auto kernel = runtime.kernel(spec);
  const auto count = static_cast<int64_t>(packed.lengths_q.size());
  result.workspace_bytes = kernel->workspace_size({count, heads, rows, keys});
  GuardedTensor workspace(DataType::fp32, {result.workspace_bytes / 4}, {1});
  BackwardArguments arguments = arguments_on(false);
  if (spec.sinks) {
    arguments.sinks = result.sinks.device_view(runtime, sink_buffers[0]);
    arguments.d_sinks = result.d_sinks.device_view(runtime, sink_buffers[1]);
  }
  arguments.workspace = workspace.device_view(runtime, buffers[10]).data;
  arguments.workspace_bytes = static_cast<size_t>(result.workspace_bytes);
  const std::string dq = result.dq.live_bytes(), dk = result.dk.live_bytes(), dv = result.dv.live_bytes();
  std::string first;
  for (int launch = 0; launch < launches; ++launch) {
    kernel->launch_backward(nullptr, arguments);
    runtime.synchronize();
    for (int i = 6; i < 9; ++i) tensors[i]->fetch(buffers[i]);
    const std::string gradients = result.dq.live_bytes() + result.dk.live_bytes() + result.dv.live_bytes();
    if (launch == 0) first = gradients;
    EXPECT_TRUE(gradients == first) << packed.spec << ": launch " << launch << " differs from the first";
  }
  workspace.fetch(buffers[10]);
  if (spec.sinks) result.d_sinks.fetch(sink_buffers[1]);

  std::string place = packed.spec + " " + describe(kernel->schedule()) + " lengths";
  for (size_t i = 0; i < packed.lengths_q.size() && i < 10; ++i)
    place += " " + std::to_string(packed.lengths_q[i]) + "x" + std::to_string(packed.lengths_kv[i]);
  result.verdict = compare_backward(spec, host);
  EXPECT_TRUE(result.verdict.ok) << place << ": " << result.verdict.message << "; wrong zeros "
                                 << result.verdict.wrong_zero_rows;
  expect_untouched(result.dq, dq, live_q, place + ", dq");
  expect_untouched(result.dk, dk, live_kv, place + ", dk");
  expect_untouched(result.dv, dv, live_kv, place + ", dv");
  for (const GuardedTensor* tensor : tensors)
    EXPECT_TRUE(tensor->guards_intact()) << place << ": bytes beside a tensor were written";
  EXPECT_TRUE(workspace.guards_intact()) << place << ": bytes beside the workspace were written";
  return result;
}

}  // namespace tilewright::test
