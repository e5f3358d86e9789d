#include "tests/support/packed_case.h"

namespace tilewright::test {
std::vector<int32_t> starts_of(const std::vector<int>& lengths) {
  std::vector<int32_t> starts = {0};
  for (int length : lengths) starts.push_back(starts.back() + length);
  return starts;
}

DeviceArray::DeviceArray(Runtime& runtime, const void* data, size_t bytes, DataType type, int64_t count)
    : host_{const_cast<void*>(data), type, {count}, {}}, device_(host_) {
  if (runtime.is_simulator() || bytes == 0) return;
  buffer_ = std::make_unique<DeviceBuffer>(runtime, bytes);
  buffer_->upload(data);
  device_.data = buffer_->data();
}

void fill_packed(GuardedTensor& tensor, char name, const PackedCase& packed, const std::vector<bool>& live,
                 std::mt19937_64& random) {
  const auto& shape = tensor.shape();
  std::normal_distribution<double> normal;
  for (int64_t row = 0, at = 0; row < shape[0]; ++row)
    for (int64_t head = 0; head < shape[1]; ++head)
      for (int64_t column = 0; column < shape[2]; ++column, ++at) {
        double value = live[row] ? normal(random) : packed.filler;
        if (packed.adjust) value = packed.adjust(name, row, head, column, value);
        tensor.set(at, value);
      }
}

std::vector<bool> live_rows(const std::vector<PackedSequence>& sequences, bool of_keys, int64_t rows) {
  std::vector<bool> live(rows);
  for (const PackedSequence& s : sequences)
    for (int64_t i = 0; i < (of_keys ? s.keys : s.queries); ++i)
      live[(of_keys ? s.first_key : s.first_query) + i] = true;
  return live;
}

PackedResult run_packed_case(Runtime& runtime, const PackedCase& packed) {
  PackedResult result;
  result.spec = parse_spec(packed.spec, "spec");
  const AttentionSpec& spec = result.spec;
  const int64_t heads = packed.heads_kv * spec.gqa_ratio;
  result.starts_q = starts_of(packed.lengths_q), result.starts_kv = starts_of(packed.lengths_kv);
  const int64_t rows_q = result.starts_q.back() + packed.rows_behind,
                rows_kv = result.starts_kv.back() + packed.rows_behind;
  if (!packed.starts_q.empty()) result.starts_q = packed.starts_q;
  if (!packed.starts_kv.empty()) result.starts_kv = packed.starts_kv;
  const auto make = [&](DataType type, int64_t rows, int64_t tensor_heads, int64_t columns) {
    return GuardedTensor(type, {rows, tensor_heads, columns}, {tensor_heads * columns, columns, 1});
  };
  result.q = make(spec.dtype.q, rows_q, heads, spec.head_dim.qk);
  result.k = make(spec.dtype.kv, rows_kv, packed.heads_kv, spec.head_dim.qk);
  result.v = make(spec.dtype.kv, rows_kv, packed.heads_kv, spec.head_dim.v);
  result.out = make(spec.dtype.out, rows_q, heads, spec.head_dim.v);
  result.lse = GuardedTensor(DataType::fp32, {heads, rows_q}, {rows_q, 1});

  const std::vector<int32_t> used_q(packed.used_q.begin(), packed.used_q.end()),
      used_kv(packed.used_kv.begin(), packed.used_kv.end());
  const DataType sink_type = packed.sinks_in_element_type ? spec.dtype.q : DataType::fp32;
  std::vector<float> sinks(heads);
  for (int64_t h = 0; h < heads; ++h)
    store_element(sinks.data(), sink_type, h,
                  packed.sinks.empty() ? 0.5 * static_cast<double>(h) : packed.sinks[h]);
  const DeviceArray starts_q(runtime, result.starts_q), starts_kv(runtime, result.starts_kv),
      uses_q(runtime, used_q), uses_kv(runtime, used_kv),
      sink_array(runtime, sinks.data(), heads * size_of(sink_type), sink_type, heads);
  ExpressionData expressions({.scalars = packed.scalars, .tensors = packed.tensors}, spec);
  std::unique_ptr<DeviceBuffer> buffers[5];
  const auto arguments = [&](bool host) {
    const auto of = [&](GuardedTensor& tensor, int i) {
      return host ? tensor.host_view() : tensor.device_view(runtime, buffers[i]);
    };
    const auto array = [&](const DeviceArray& a) { return host ? a.host() : a.device(); };
    ForwardArguments made{
        .q = of(result.q, 0), .k = of(result.k, 1), .v = of(result.v, 2), .out = of(result.out, 3)};
    if (spec.lse) made.lse = of(result.lse, 4);
    if (spec.softmax_scale_at_launch) made.softmax_scale = 0.3;
    if (spec.dropout) made.dropout = Dropout{.rate = 0.3, .seed = packed.seed, .offset = 1};
    made.cu_seqlens_q = array(starts_q), made.cu_seqlens_kv = array(starts_kv);
    if (!used_q.empty()) made.seqused_q = array(uses_q);
    if (!used_kv.empty()) made.seqused_kv = array(uses_kv);
    if (spec.sinks) made.sinks = array(sink_array);
    expressions.give(host ? nullptr : &runtime, made);
    return made;
  };
  const std::vector<PackedSequence> sequences = packed_sequences(arguments(true));
  const auto live_q = live_rows(sequences, false, rows_q), live_kv = live_rows(sequences, true, rows_kv);
  std::mt19937_64 random(packed.seed);
  fill_packed(result.q, 'q', packed, live_q, random);
  fill_packed(result.k, 'k', packed, live_kv, random);
  fill_packed(result.v, 'v', packed, live_kv, random);

  const std::string poison = result.out.live_bytes();
  const auto kernel = runtime.kernel(spec);
  kernel->launch(nullptr, arguments(false));
  runtime.synchronize();
  result.out.fetch(buffers[3]);
  result.lse.fetch(buffers[4]);
  if (packed.checked)
    result.verdict = compare_forward(spec, arguments(true));
  else
    result.verdict.ok = true;

  std::string place = packed.spec + " lengths";
  for (size_t i = 0; i < packed.lengths_q.size() && i < 10; ++i)
    place += " " + std::to_string(packed.lengths_q[i]) + "x" + std::to_string(packed.lengths_kv[i]);
  EXPECT_TRUE(result.verdict.ok) << place << ": " << result.verdict.message;
  const std::string bytes = result.out.live_bytes();
  const size_t row_bytes = rows_q ? bytes.size() / rows_q : 0;
  for (int64_t row = 0; row < rows_q; ++row) {
    if (live_q[row]) continue;
    EXPECT_EQ(bytes.substr(row * row_bytes, row_bytes), poison.substr(row * row_bytes, row_bytes))
        << place << ": row " << row << " belongs to no sequence and was written";
    for (int64_t h = 0; h < heads; ++h) EXPECT_TRUE(std::isnan(result.lse_at(h, row))) << place;
  }
  for (const GuardedTensor* tensor : {&result.q, &result.k, &result.v, &result.out, &result.lse})
    EXPECT_TRUE(tensor->guards_intact()) << place << ": bytes beside a tensor were written";
  return result;
}

}  // namespace tilewright::test
