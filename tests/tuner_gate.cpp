// The gate lets nothing wrong through to the clock.
#include "tuner/gate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "codegen/error.h"

namespace tilewright {
namespace {

/// Memory of the host.
class HostDevice final : public Device {
 public:
  bool is_simulator() const override { return true; }
  const Target& target() const override { return target_by_name("sm_80"); }
  std::string name() const override { return "host"; }
  Backend backend() const override { return Backend::device; }
  std::unique_ptr<Executable> load(const AttentionSpec&, const Schedule&, const Source&, KernelCache&,
                                   CacheResult&) override {
    return nullptr;
  }
  void* allocate(size_t bytes) override { return std::aligned_alloc(256, (bytes + 255) / 256 * 256); }
  void free(void* data) noexcept override { std::free(data); }
  void upload(void* destination, const void* host, size_t bytes) override {
    std::memcpy(destination, host, bytes);
  }
  void download(void* host, const void* source, size_t bytes) override { std::memcpy(host, source, bytes); }
  void fill(void* destination, unsigned char value, size_t bytes) override {
    std::memset(destination, value, bytes);
  }
  void synchronize() override {}
};

/// Computes attention rightly, then does something wrong.
class Kernel final : public Executable {
 public:
  using Fault = std::function<void(const ForwardArguments&)>;
  Kernel(AttentionSpec spec, Fault fault = {}) : spec_(std::move(spec)), fault_(std::move(fault)) {}

  void launch(Stream, const PreparedLaunch&, const ForwardArguments& arguments,
              const LaunchOptions&) const override {
    const ReferenceResult right = plain_forward(spec_, arguments);
    for (size_t i = 0; i < right.out.size(); ++i)
      store_element(arguments.out.data, spec_.dtype.out, static_cast<int64_t>(i), right.out[i]);
    for (size_t i = 0; spec_.lse && i < right.lse.size(); ++i)
      store_element(arguments.lse->data, DataType::fp32, static_cast<int64_t>(i), right.lse[i]);
    if (fault_) fault_(arguments);
  }
  void launch(Stream, const PreparedBackward&, const BackwardArguments& arguments) const override {
    const ReferenceGradients right = plain_backward(spec_, arguments);
    const auto store = [&](const TensorView& view, const std::vector<double>& values) {
      for (size_t i = 0; i < values.size(); ++i)
        store_element(view.data, view.dtype, static_cast<int64_t>(i), values[i]);
    };
    store(arguments.dq, right.dq), store(arguments.dk, right.dk), store(arguments.dv, right.dv);
    if (arguments.d_sinks) store(*arguments.d_sinks, right.d_sinks);
    if (arguments.d_bias) store(*arguments.d_bias, right.d_bias);
    std::memset(arguments.workspace, 0, arguments.workspace_bytes);
    if (backward_fault) backward_fault(arguments);
  }
  const CompileReport& report() const override { return report_; }

  std::function<void(const BackwardArguments&)> backward_fault;

 private:
  AttentionSpec spec_;
  Fault fault_;
  CompileReport report_;
};

// Case J4, in a type that has kernels.
const char* const spec_text =
    "{head_dim: 32, dtype: fp16, lse: true, mask: causal, gqa_ratio: 2, sinks: true}";

std::string refusal(const Kernel::Fault& fault) {
  const AttentionSpec spec = parse_spec(spec_text, "spec");
  HostDevice device;
  Gate gate(spec);
  const Kernel kernel(spec, fault);
  return gate.refuse(device, choose_schedule(spec, device.target()), kernel);
}

std::string backward_refusal(const std::function<void(const BackwardArguments&)>& fault) {
  const AttentionSpec spec = parse_spec(
      "{pass: backward, head_dim: 32, dtype: fp16, lse: true, mask: {window: [40, 0]}, gqa_ratio: 2, sinks: "
      "true}",
      "spec");
  HostDevice device;
  Gate gate(spec);
  Kernel kernel(spec);
  kernel.backward_fault = fault;
  return gate.refuse(device, choose_schedule(spec, device.target()), kernel);
}

bool is_shape(const ForwardArguments& arguments, int64_t queries, int64_t keys) {
  return arguments.q.shape[1] == queries && arguments.k.shape[1] == keys;
}

TEST(Gate, LetsTheRightOnePass) {
  EXPECT_EQ(refusal({}), "");
}

TEST(Gate, RefusesNotANumber) {
  const std::string reason = refusal([](const ForwardArguments& arguments) {
    if (is_shape(arguments, 96, 96)) store_element(arguments.out.data, DataType::fp16, 1234, NAN);
  });
  EXPECT_NE(reason.find("wrong with batch 2, 4 heads, 96 queries, 96 keys"), std::string::npos) << reason;
  EXPECT_NE(reason.find("nan"), std::string::npos) << reason;
}

TEST(Gate, RefusesAWrongLse) {
  EXPECT_NE(refusal([](const ForwardArguments& arguments) {
              store_element(arguments.lse->data, DataType::fp32, 3, 1000);
            }),
            "");
}

TEST(Gate, RefusesWhatIsNotWritten) {
  EXPECT_NE(refusal([](const ForwardArguments& arguments) {
              if (is_shape(arguments, 261, 150))
                std::memset(static_cast<char*>(arguments.out.data) + 4000, 0xFF, 2);
            }),
            "");
}

TEST(Gate, RefusesBytesBesideTheOutput) {
  EXPECT_NE(refusal([](const ForwardArguments& arguments) {
              static_cast<char*>(arguments.out.data)[-1] = 0;
            }).find("bytes beside the output were written"),
            std::string::npos);
}

TEST(Gate, RefusesAnErrorThatRoundingDoesNotExplain) {
  EXPECT_NE(refusal([](const ForwardArguments& arguments) {
              const double value = load_element(arguments.out.data, DataType::fp16, 77);
              store_element(arguments.out.data, DataType::fp16, 77, value + 0.05);
            }),
            "");
}

TEST(Gate, LetsWhateverASpecTakesPass) {
  for (const char* text :
       {"{head_dim: 16, layout: packed, mask: causal, lse: true, gqa_ratio: 2}",
        "{head_dim: 16, alibi: true, mask: causal}", "{head_dim: 16, bias: true}",
        "{pass: backward, head_dim: 16, bias: true, bias_gradient: true}",
        "{head_dim: 16, mask: {blocks: {m: 64, n: 32}, with: causal}, sinks: true}",
        "{head_dim: 16, mask: 'kv <= q && kv >= start[q]', tensors: {start: 'int32[q]'}}",
        "{head_dim: 16, mask: 'kv <= q || kv < prefix', scalars: {prefix: int}}",
        "{head_dim: 16, score: 'cap * tanh(score / cap) + t[head, 3]', scalars: {cap: float}, "
        "tensors: {t: 'float32[head, 4]'}}",
        "{pass: backward, head_dim: 16, layout: packed, mask: causal, lse: true, gqa_ratio: 2}",
        "{head_dim: 16, layout: packed, mask: 'kv < n[batch]', tensors: {n: 'int32[batch]'}, bias: true}"}) {
    const AttentionSpec spec = parse_spec(text, "spec");
    HostDevice device;
    Gate gate(spec);
    EXPECT_EQ(gate.refuse(device, choose_schedule(spec, device.target()), Kernel(spec)), "") << text;
  }
}

TEST(Gate, ChecksEveryGradient) {
  EXPECT_EQ(backward_refusal({}), "");
  for (TensorView BackwardArguments::*gradient :
       {&BackwardArguments::dq, &BackwardArguments::dk, &BackwardArguments::dv}) {
    const auto at = [&](int64_t place, double change) {
      return backward_refusal([=](const BackwardArguments& arguments) {
        void* data = (arguments.*gradient).data;
        store_element(data, DataType::fp16, place, load_element(data, DataType::fp16, place) + change);
      });
    };
    EXPECT_NE(at(77, 0.5), "");
    EXPECT_NE(at(5, NAN).find("nan"), std::string::npos);
    EXPECT_NE(at(-1, 0.5).find("bytes beside the output were written"), std::string::npos);
  }
  EXPECT_NE(backward_refusal([](const BackwardArguments& arguments) {
              static_cast<char*>(arguments.workspace)[arguments.workspace_bytes] = 0;
            }).find("bytes beside the output were written"),
            std::string::npos);
}

}  // namespace
}  // namespace tilewright
