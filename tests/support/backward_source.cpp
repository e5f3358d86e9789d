#include "tests/support/backward_source.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "codegen/backward_plan.h"
#include "codegen/error.h"

namespace tilewright::test {

SourceOutcome launch_source(const AttentionSpec& spec, const Target& target, const Source& source,
                            uint64_t seed, int64_t rows, int64_t keys, std::optional<uint64_t> inputs) {
  const Schedule schedule = choose_schedule(spec, target);
  const int64_t heads = spec.gqa_ratio, dim = spec.head_dim.qk;
  std::vector<uint16_t> q(rows * heads * dim), k(keys * dim), v(k), out(q), d_out(q), dq(q), dk(k), dv(k);
  std::vector<float> lse(rows * heads);
  std::mt19937_64 random(inputs.value_or(seed) + 1);
  std::normal_distribution<double> normal;
  for (std::vector<uint16_t>* tensor : {&q, &k, &v, &d_out})
    for (size_t i = 0; i < tensor->size(); ++i)
      store_element(tensor->data(), DataType::bf16, static_cast<int64_t>(i), normal(random));
  const auto view = [&](std::vector<uint16_t>& tensor) {
    const int64_t tensor_heads = tensor.size() == q.size() ? heads : 1;
    const int64_t length = static_cast<int64_t>(tensor.size()) / tensor_heads / dim;
    return TensorView{tensor.data(), DataType::bf16, {1, length, tensor_heads, dim}, {}};
  };
  BackwardArguments arguments{.q = view(q),
                              .k = view(k),
                              .v = view(v),
                              .out = view(out),
                              .lse = {lse.data(), DataType::fp32, {1, heads, rows}, {}},
                              .d_out = view(d_out),
                              .dq = view(dq),
                              .dk = view(dk),
                              .dv = view(dv)};
  const ReferenceResult forward = plain_forward(forward_spec(spec), forward_part(arguments));
  for (size_t i = 0; i < out.size(); ++i)
    store_element(out.data(), DataType::bf16, static_cast<int64_t>(i), forward.out[i]);
  std::copy(forward.lse.begin(), forward.lse.end(), lse.begin());
  std::vector<float> workspace(workspace_size(spec, schedule, {1, heads, rows, keys}) / 4, std::nanf(""));
  arguments.workspace = workspace.data();
  arguments.workspace_bytes = workspace.size() * 4;

  const auto device = make_simulator_device({.seed = seed}, std::string(target.name));
  KernelCache cache({.disk = false});
  CacheResult from;
  try {
    device->load(spec, schedule, source, cache, from)
        ->launch(nullptr, prepare_backward(spec, schedule, arguments), arguments);
  } catch (const Error& error) {
    return {error.what(), ""};
  }
  SourceOutcome outcome{compare_backward(spec, arguments).ok ? "" : "wrong answer", ""};
  for (const std::vector<uint16_t>* tensor : {&dq, &dk, &dv})
    outcome.bits.append(reinterpret_cast<const char*>(tensor->data()), tensor->size() * 2);
  const auto sums =
      static_cast<size_t>(plan_backward(spec, schedule, {1, heads, rows, keys}).workspace.lse_log2);
  outcome.bits.append(reinterpret_cast<const char*>(workspace.data()), sums);
  return outcome;
}

Source source_of(const AttentionSpec& spec, const Target& target) {
  return emit(spec, choose_schedule(spec, target), target, Backend::simulator);
}

}  // namespace tilewright::test
