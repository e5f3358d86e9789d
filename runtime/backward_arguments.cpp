#include "runtime/backward_arguments.h"

#include <cmath>

#include "codegen/error.h"
#include "runtime/dropout.h"
#include "runtime/packed.h"
#include "runtime/workspace.h"

namespace tilewright {
namespace {

/// Of what the forward pass does not check.
void check_packed_ranks(const BackwardArguments& arguments) {
  const auto check = [](const char* name, const TensorView& view, size_t rank, const char* dimensions) {
    if (view.shape.size() == rank && (view.strides.empty() || view.strides.size() == rank)) return;
    throw Error(ErrorKind::usage, std::string(name) + " has " + std::to_string(view.shape.size()) +
                                      " dimensions and " + std::to_string(view.strides.size()) +
                                      " strides, expected " + std::to_string(rank) + dimensions);
  };
  const char* rows = " (rows of all sequences, heads, head_dim)";
  check("d_out", arguments.d_out, 3, rows);
  check("dq", arguments.dq, 3, rows);
  check("dk", arguments.dk, 3, rows);
  check("dv", arguments.dv, 3, rows);
  if (arguments.d_lse) check("d_lse", *arguments.d_lse, 2, " (heads, rows of all sequences)");
}

}  // namespace

ForwardArguments forward_part(const BackwardArguments& arguments) {
  return {.q = arguments.q,
          .k = arguments.k,
          .v = arguments.v,
          .out = arguments.out,
          .lse = arguments.lse,
          .softmax_scale = arguments.softmax_scale,
          .cu_seqlens_q = arguments.cu_seqlens_q,
          .cu_seqlens_kv = arguments.cu_seqlens_kv,
          .seqused_q = arguments.seqused_q,
          .seqused_kv = arguments.seqused_kv,
          .sinks = arguments.sinks,
          .scalars = arguments.scalars,
          .tensors = arguments.tensors,
          .dropout = arguments.dropout};
}

AttentionSpec forward_spec(const AttentionSpec& spec) {
  AttentionSpec forward = spec;
  forward.pass = Pass::forward;
  forward.lse = true;
  forward.bias_gradient = false;
  return forward;
}

void check_arguments(const AttentionSpec& spec, const BackwardArguments& given) {
  if (spec.pass != Pass::backward)
    throw Error(ErrorKind::usage, "these are arguments of the backward pass; the spec says `pass: " +
                                      std::string(name_of(spec.pass)) + "`");
  check_arguments(forward_spec(spec), forward_part(given));
  std::optional<BackwardArguments> batched;
  if (spec.layout == Layout::packed) {
    check_packed_ranks(given);
    batched = with_batch_of_one(given);
  }
  const BackwardArguments& arguments = batched ? *batched : given;
  check_like(spec, "d_out", arguments.d_out, "out", arguments.out, false);
  check_like(spec, "dq", arguments.dq, "q", arguments.q, true);
  check_like(spec, "dk", arguments.dk, "k", arguments.k, true);
  check_like(spec, "dv", arguments.dv, "v", arguments.v, true);
  if (arguments.d_lse && !spec.lse)
    throw Error(ErrorKind::usage, "d_lse was given, but the spec does not say `lse: true`");
  if (arguments.d_lse) check_rows("d_lse", *arguments.d_lse, arguments.q);
  if (arguments.d_sinks && !spec.sinks)
    throw Error(ErrorKind::usage, "d_sinks was given, but the spec does not say `sinks: true`");
  if (arguments.d_sinks) check_heads("d_sinks", *arguments.d_sinks, arguments.q);
  if (spec.bias_gradient != arguments.d_bias.has_value())
    throw Error(ErrorKind::usage, spec.bias_gradient
                                      ? "d_bias is missing: the spec says `bias_gradient: true`"
                                      : "d_bias was given, but the spec does not say `bias_gradient: true`");
  if (arguments.d_bias) check_bias_gradient(spec, forward_part(arguments), *arguments.d_bias);
}

PreparedBackward prepare_backward(const AttentionSpec& spec, const Schedule& schedule,
                                  const BackwardArguments& given) {
  check_arguments(spec, given);
  const bool packed = spec.layout == Layout::packed;
  std::optional<BackwardArguments> batched;
  const BackwardArguments& arguments = packed ? batched.emplace(with_batch_of_one(given)) : given;
  PreparedBackward launch{};
  LaunchShape shape = launch_shape(forward_part(arguments));
  if (packed) shape.batch = sequence_count(forward_part(given));
  launch.plan = plan_backward(spec, schedule, shape);
  const double scale = arguments.softmax_scale.value_or(spec.softmax_scale_at_launch ? 0 : spec.scale());
  check_workspace(launch.plan.workspace.bytes, arguments.workspace, arguments.workspace_bytes);
  char* const workspace = static_cast<char*>(arguments.workspace);
  const BackwardWorkspace& parts = launch.plan.workspace;
  launch.parameters = {
      .forward = {.q = tensor_parameters(spec, arguments.q),
                  .k = tensor_parameters(spec, arguments.k),
                  .v = tensor_parameters(spec, arguments.v),
                  .out = tensor_parameters(spec, arguments.out),
                  .lse = static_cast<float*>(arguments.lse.data),
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
                  .sequences = packed ? static_cast<int>(shape.batch) : 0,
                  .sink_bytes = arguments.sinks ? size_of(arguments.sinks->dtype) : 0,
                  .block_entries = 0,
                  .block_batch_stride = 0,
                  .block_head_stride = 0,
                  .dropout = dropout_parameters(arguments.dropout)},
      .d_out = tensor_parameters(spec, arguments.d_out),
      .dq = tensor_parameters(spec, arguments.dq),
      .dk = tensor_parameters(spec, arguments.dk),
      .dv = tensor_parameters(spec, arguments.dv),
      .d_lse = arguments.d_lse ? static_cast<const float*>(arguments.d_lse->data) : nullptr,
      .dq_sums = reinterpret_cast<float*>(workspace + parts.dq_sums),
      .lse_log2 = reinterpret_cast<float*>(workspace + parts.lse_log2),
      .row_terms = reinterpret_cast<float*>(workspace + parts.row_terms),
      .turns = reinterpret_cast<int*>(workspace + parts.turns),
      .query_blocks = static_cast<int>(launch.plan.query_blocks),
      .n_tiles = static_cast<int>(launch.plan.n_tiles),
      .key_blocks = static_cast<int>(launch.plan.key_blocks),
      .section_heads = static_cast<int>(launch.plan.section_heads),
      .sink_terms = reinterpret_cast<float*>(workspace + parts.sink_terms),
      .d_sinks = arguments.d_sinks ? static_cast<float*>(arguments.d_sinks->data) : nullptr,
      .row_ranges = reinterpret_cast<int*>(workspace + parts.row_ranges),
  };
  if (has_expressions(spec)) {
    ForwardArguments taken = forward_part(arguments);
    if (spec.bias_gradient) taken.tensors[bias_gradient_tensor] = *arguments.d_bias;
    pack_expressions(spec, taken, {}, launch.expressions);
  }
  if (schedule.family == Family::sm90 && launch.plan.key_blocks > 0) {
    void* const stand_in = arguments.k.data;
    launch.q_map = describe_tensor_map(spec, "q", arguments.q, schedule.block_m, stand_in);
    launch.k_map = describe_tensor_map(spec, "k", arguments.k, schedule.block_n, stand_in);
    launch.v_map = describe_tensor_map(spec, "v", arguments.v, schedule.block_n, stand_in);
    launch.d_out_map = describe_tensor_map(spec, "d_out", arguments.d_out, schedule.block_m, stand_in);
  }
  return launch;
}

}  // namespace tilewright
