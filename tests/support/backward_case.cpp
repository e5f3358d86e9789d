#include "tests/support/backward_case.h"

namespace tilewright::test {
namespace {

/// Fills an output of the forward pass from its contiguous values, in the order batch, sequence, heads,
/// columns.
void fill_from(GuardedTensor& tensor, const std::vector<double>& values) {
  const auto& shape = tensor.shape();
  const auto& strides = tensor.strides();
  size_t index = 0;
  for (int64_t b = 0; b < shape[0]; ++b)
    for (int64_t i = 0; i < shape[1]; ++i)
      for (int64_t h = 0; h < shape[2]; ++h)
        for (int64_t d = 0; d < shape[3]; ++d)
          tensor.set(b * strides[0] + i * strides[1] + h * strides[2] + d * strides[3], values[index++]);
}

}  // namespace

BackwardResult run_backward(Runtime& runtime, const AttentionCase& attention, bool check, int launches) {
  BackwardResult result;
  result.spec = parse_spec(attention.spec, "spec");
  const AttentionSpec& spec = result.spec;
  const int64_t heads = attention.heads_kv * spec.gqa_ratio, batch = attention.batch;
  const int64_t rows = attention.seqlen_q, keys = attention.seqlen_kv;
  const int qk = spec.head_dim.qk, v = spec.head_dim.v;
  const auto make = [&](char name, int64_t length, int64_t tensor_heads, int64_t columns) {
    return make_tensor(spec, attention, name, spec.dtype.q, length, tensor_heads, columns);
  };
  const std::vector<int64_t> lse_shape = {batch, heads, rows}, lse_strides = {heads * rows, rows, 1};
  result.q = make('q', rows, heads, qk), result.dq = make('Q', rows, heads, qk);
  result.k = make('k', keys, attention.heads_kv, qk), result.dk = make('K', keys, attention.heads_kv, qk);
  result.v = make('v', keys, attention.heads_kv, v), result.dv = make('V', keys, attention.heads_kv, v);
  result.out = make('o', rows, heads, v), result.d_out = make('d', rows, heads, v);
  result.lse = GuardedTensor(DataType::fp32, lse_shape, lse_strides);
  result.d_lse = GuardedTensor(DataType::fp32, lse_shape, lse_strides);
  std::mt19937_64 random(attention.seed);
  fill_tensor(result.q, 'q', attention, random);
  fill_tensor(result.k, 'k', attention, random);
  fill_tensor(result.v, 'v', attention, random);
  fill_tensor(result.d_out, 'd', attention, random);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < result.d_lse.elements(); ++i) result.d_lse.set(i, normal(random));

  if (spec.sinks) {
    result.sinks = GuardedTensor(DataType::fp32, {heads}, {1});
    result.d_sinks = GuardedTensor(DataType::fp32, {heads}, {1});
    for (int64_t i = 0; i < heads; ++i) result.sinks.set(i, 2 * normal(random) - attention.level);
  }

  BackwardArguments host = {.q = result.q.host_view(),
                            .k = result.k.host_view(),
                            .v = result.v.host_view(),
                            .out = result.out.host_view(),
                            .lse = result.lse.host_view(),
                            .d_out = result.d_out.host_view(),
                            .dq = result.dq.host_view(),
                            .dk = result.dk.host_view(),
                            .dv = result.dv.host_view()};
  if (spec.lse) host.d_lse = result.d_lse.host_view();
  if (spec.sinks) host.sinks = result.sinks.host_view(), host.d_sinks = result.d_sinks.host_view();
  if (spec.softmax_scale_at_launch) host.softmax_scale = 0.3;
  ExpressionData expressions(attention, spec);
  expressions.give(nullptr, host);
  if (spec.bias_gradient) {
    const std::vector<int64_t> shape = host.tensors.at("bias").shape;
    result.d_bias = GuardedTensor(DataType::fp32, shape,
                                  {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1});
    for (int64_t i = 0; i < result.d_bias.elements(); ++i) result.d_bias.set(i, 0);
    host.d_bias = result.d_bias.host_view();
  }
  if (spec.dropout) host.dropout = attention.dropout;
  const ReferenceResult forward = plain_forward(forward_spec(spec), forward_part(host));
  fill_from(result.out, forward.out);
  for (size_t i = 0; i < forward.lse.size(); ++i) result.lse.set(static_cast<int64_t>(i), forward.lse[i]);

  const auto kernel = runtime.kernel(spec);
  const LaunchShape shape{batch, heads, rows, keys};
  result.workspace_bytes = kernel->workspace_size(shape);
  GuardedTensor workspace(DataType::fp32, {result.workspace_bytes / 4}, {1});
  std::unique_ptr<DeviceBuffer> buffers[11], sink_buffers[2], bias_buffer;
  BackwardArguments arguments = host;
  GuardedTensor* const tensors[] = {&result.q,     &result.k,  &result.v,  &result.out, &result.lse,
                                    &result.d_out, &result.dq, &result.dk, &result.dv,  &result.d_lse};
  TensorView* const views[] = {&arguments.q,     &arguments.k,  &arguments.v,  &arguments.out, &arguments.lse,
                               &arguments.d_out, &arguments.dq, &arguments.dk, &arguments.dv};
  for (int i = 0; i < 9; ++i) *views[i] = tensors[i]->device_view(runtime, buffers[i]);
  if (spec.lse) arguments.d_lse = result.d_lse.device_view(runtime, buffers[9]);
  expressions.give(&runtime, arguments);
  if (spec.sinks) {
    arguments.sinks = result.sinks.device_view(runtime, sink_buffers[0]);
    arguments.d_sinks = result.d_sinks.device_view(runtime, sink_buffers[1]);
  }
  if (spec.bias_gradient) arguments.d_bias = result.d_bias.device_view(runtime, bias_buffer);
  arguments.workspace = workspace.device_view(runtime, buffers[10]).data;
  arguments.workspace_bytes = static_cast<size_t>(result.workspace_bytes);
  kernel->launch_backward(nullptr, arguments);
  runtime.synchronize();
  for (int i = 0; i < 10; ++i) tensors[i]->fetch(buffers[i]);
  result.d_sinks.fetch(sink_buffers[1]);
  result.d_bias.fetch(bias_buffer);
  workspace.fetch(buffers[10]);

  // Again over what the launch before left behind.
  const auto gradients = [&] {
    return result.dq.live_bytes() + result.dk.live_bytes() + result.dv.live_bytes() +
           result.d_sinks.live_bytes();
  };
  const std::string first = launches > 1 ? gradients() : "";
  for (int launch = 2; launch <= launches; ++launch) {
    kernel->launch_backward(nullptr, arguments);
    runtime.synchronize();
    for (int i = 6; i < 9; ++i) tensors[i]->fetch(buffers[i]);
    result.d_sinks.fetch(sink_buffers[1]);
    result.d_bias.fetch(bias_buffer);
    if (gradients() == first) continue;
    ADD_FAILURE() << attention.spec << ": launch " << launch << " differs from the first";
    break;
  }

  const std::string place = attention.spec + " batch " + std::to_string(batch) + " kv heads " +
                            std::to_string(attention.heads_kv) + " lengths " + std::to_string(rows) + ", " +
                            std::to_string(keys) + ", schedule " +
                            describe(kernel->variant_for(shape).schedule);
  if (check) {
    result.verdict = compare_backward(spec, host);
    const auto text = [](const char* name, const GradientError& e) {
      return std::string("; ") + name + " " + std::to_string(e.error) + " of " + std::to_string(e.allowed) +
             ", rms " + std::to_string(e.rms_error) + " of " + std::to_string(e.rms_allowed);
    };
    EXPECT_TRUE(result.verdict.ok) << place << ": " << result.verdict.message << text("dq", result.verdict.dq)
                                   << text("dk", result.verdict.dk) << text("dv", result.verdict.dv)
                                   << text("d_sinks", result.verdict.d_sinks)
                                   << text("d_bias", result.verdict.d_bias) << "; wrong zero rows "
                                   << result.verdict.wrong_zero_rows;
  }
  for (const GuardedTensor* tensor : tensors)
    EXPECT_TRUE(tensor->guards_intact()) << place << ": bytes beside a tensor were written";
  if (spec.sinks) {
    EXPECT_TRUE(result.d_sinks.guards_intact()) << place << ": bytes beside d_sinks were written";
  }
  if (spec.bias_gradient) {
    EXPECT_TRUE(result.d_bias.guards_intact()) << place << ": bytes beside d_bias were written";
  }
  EXPECT_TRUE(workspace.guards_intact()) << place << ": bytes beside the workspace were written";
  return result;
}

}  // namespace tilewright::test
