// One forward launch over sequences of different lengths, its inputs made, its outputs poisoned and guarded,
// and its answer checked.
#pragma once

#include "runtime/packed.h"
#include "tests/support/attention_case.h"

namespace tilewright::test {

struct PackedCase {
  std::string spec;                        // YAML with `layout: packed`
  std::vector<int> lengths_q, lengths_kv;  // of the sequences
  std::vector<int> used_q, used_kv;        // empty: not given
  int rows_behind = 0;                     // of no sequence, behind the last one
  int64_t heads_kv = 1;
  std::vector<double> sinks;  // empty: 0.5 times the head
  bool sinks_in_element_type = false;
  bool checked = true;  // against the reference
  /// What the spec's expressions take; names that it does not declare are left out.
  std::map<std::string, double> scalars;
  std::map<std::string, NamedTensor> tensors;
  uint64_t seed = 1;
  /// What rows of no sequence hold, in q, k and v.
  double filler = std::numeric_limits<double>::quiet_NaN();
  /// Changes an input element after it was made: tensor 'q', 'k' or 'v', then row, head, column.
  std::function<double(char, int64_t, int64_t, int64_t, double)> adjust;
  /// What the arrays say instead of the lengths' sums; the answer is checked as kernels clamp them.
  std::vector<int32_t> starts_q, starts_kv;
};

/// The sums before each sequence, and all of them.
std::vector<int32_t> starts_of(const std::vector<int>& lengths);

/// An array in host memory, and where the kernel finds it.
class DeviceArray {
 public:
  DeviceArray(Runtime& runtime, const void* data, size_t bytes, DataType type, int64_t count);
  DeviceArray(Runtime& runtime, const std::vector<int32_t>& numbers)
      : DeviceArray(runtime, numbers.data(), numbers.size() * 4, DataType::int32,
                    static_cast<int64_t>(numbers.size())) {}
  const TensorView& host() const { return host_; }
  const TensorView& device() const { return device_; }

 private:
  TensorView host_, device_;
  std::unique_ptr<DeviceBuffer> buffer_;
};

/// Of each row whether a sequence has it.
std::vector<bool> live_rows(const std::vector<PackedSequence>& sequences, bool of_keys, int64_t rows);

/// What the case says of an input of that name.
void fill_packed(GuardedTensor& tensor, char name, const PackedCase& packed, const std::vector<bool>& live,
                 std::mt19937_64& random);

struct PackedResult {
  AttentionSpec spec;
  GuardedTensor q, k, v, out, lse;
  std::vector<int32_t> starts_q, starts_kv;
  Verdict verdict;
  double out_at(int64_t row, int64_t head, int64_t column) const {
    return out.get(row * out.strides()[0] + head * out.strides()[1] + column);
  }
  double lse_at(int64_t head, int64_t row) const { return lse.get(head * lse.shape()[1] + row); }
};

/// Runs the case; a wrong answer, or a byte changed in rows of no sequence, is a failure of the current test.
PackedResult run_packed_case(Runtime& runtime, const PackedCase& packed);

}  // namespace tilewright::test
