#include "tuner/gate.h"

#include <algorithm>
#include <list>

#include "codegen/backward_plan.h"

namespace tilewright {
namespace {

constexpr size_t guard_bytes = 256;
constexpr unsigned char guard = 0xA5;

/// Device memory for a scope.
class Buffer {
 public:
  Buffer(Device& device, const std::vector<unsigned char>& bytes) : device_(device) {
    std::vector<unsigned char> image(bytes.size() + 2 * guard_bytes, guard);
    std::copy(bytes.begin(), bytes.end(), image.begin() + guard_bytes);
    size_ = image.size();
    data_ = device.allocate(size_);
    device.upload(data_, image.data(), size_);
  }
  ~Buffer() { device_.free(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* inside() const { return static_cast<char*>(data_) + guard_bytes; }
  /// Returns whether the guards are as they were.
  bool download(std::vector<unsigned char>& bytes) const {
    std::vector<unsigned char> image(size_);
    device_.download(image.data(), data_, size_);
    const auto first = image.begin() + guard_bytes, last = image.end() - guard_bytes;
    std::copy(first, last, bytes.begin());
    const auto intact = [](unsigned char byte) { return byte == guard; };
    return std::all_of(image.begin(), first, intact) && std::all_of(last, image.end(), intact);
  }

 private:
  Device& device_;
  void* data_;
  size_t size_;
};

std::string shape_text(const LaunchShape& shape) {
  return "batch " + std::to_string(shape.batch) + ", " + std::to_string(shape.heads) + " heads, " +
         std::to_string(shape.seqlen_q) + " queries, " + std::to_string(shape.seqlen_kv) + " keys";
}

}  // namespace

Gate::Gate(const AttentionSpec& spec) : spec_(spec) {
  const int64_t kv_heads = spec.gqa_ratio >= 4 ? 1 : 2, heads = kv_heads * spec.gqa_ratio;
  if (spec.layout == Layout::packed) {
    // Means: sequences are half longer and half shorter, and of four one is empty.
    add_case({3, heads, 77, 400}, true, 1);
    add_case({5, heads, 96, 96}, false, 2);
    add_case({4, heads, 1, 129}, true, 3);
    return;
  }
  // 1100 keys go around every ring of tiles; fewer keys than queries leave causal rows without any; 96 of 96
  // fill tiles of 96 and of 32 and no others.
  add_case({1, heads, 77, 1100}, true, 1);
  add_case({1, heads, 261, 150}, false, 2);
  add_case({2, heads, 96, 96}, false, 3);
  add_case({1, heads, 1, 129}, true, 4);
}

void Gate::add_case(const LaunchShape& shape, bool outliers, uint64_t seed) {
  Case one{shape, LaunchInputs(spec_, shape, {.seed = seed, .outliers = outliers, .exact = true}), {}, {}};
  if (spec_.pass == Pass::backward)
    one.backward = backward_answers(spec_, one.inputs.backward());
  else
    one.forward = forward_answers(spec_, one.inputs.forward());
  cases_.push_back(std::move(one));
}

std::string Gate::refuse(Device& device, const Schedule& schedule, const Executable& executable) {
  for (Case& one : cases_) {
    const std::string wrong = refuse_case(device, schedule, executable, one);
    if (!wrong.empty()) return "wrong with " + shape_text(one.shape) + ": " + wrong;
  }
  return {};
}

std::string Gate::refuse_case(Device& device, const Schedule& schedule, const Executable& executable,
                              Case& one) {
  std::list<Buffer> buffers;
  std::vector<void*> places;
  for (InputTensor& tensor : one.inputs.tensors) {
    if (tensor.written) std::fill(tensor.bytes.begin(), tensor.bytes.end(), tensor.added_to ? 0 : 0xFF);
    places.push_back(buffers.emplace_back(device, tensor.bytes).inside());
  }
  const int64_t bytes = workspace_size(spec_, schedule, all_sequences(spec_, one.shape));
  std::vector<unsigned char> workspace(static_cast<size_t>(bytes), 0xFF);
  const auto with_workspace = [&](auto arguments) {
    arguments.workspace = buffers.emplace_back(device, workspace).inside();
    arguments.workspace_bytes = workspace.size();
    return arguments;
  };
  const bool backward = spec_.pass == Pass::backward;
  if (backward) {
    const BackwardArguments arguments = with_workspace(one.inputs.backward(places));
    executable.launch(nullptr, prepare_backward(spec_, schedule, arguments), arguments);
  } else {
    const ForwardArguments arguments = with_workspace(one.inputs.forward(places));
    executable.launch(nullptr, prepare_launch(spec_, schedule, arguments), arguments, {});
  }
  device.synchronize();
  auto buffer = buffers.begin();
  bool intact = true;
  for (InputTensor& tensor : one.inputs.tensors) {
    if (tensor.written) intact = buffer->download(tensor.bytes) && intact;
    ++buffer;
  }
  intact = buffer->download(workspace) && intact;
  if (!intact) return "bytes beside the output were written";
  if (backward) {
    const BackwardVerdict verdict = compare_backward(spec_, one.inputs.backward(), one.backward);
    return verdict.ok ? "" : verdict.message;
  }
  const Verdict verdict = compare_forward(spec_, one.inputs.forward(), one.forward);
  return verdict.ok ? "" : verdict.message;
}

}  // namespace tilewright
