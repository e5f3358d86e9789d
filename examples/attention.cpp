#include <cstdio>
#include <tilewright/tilewright.hpp>
#include <vector>

int main() {
  // {} in place of the options: the GPU, if there is one. Then the tensors are device memory, and a stream is yours.
  tilewright::Runtime runtime({.device = {tilewright::DeviceChoice::Kind::simulator}});
  auto kernel = runtime.kernel(tilewright::parse_spec("{head_dim: 64, dtype: fp16, mask: causal}", "example"));

  std::vector<uint16_t> q(1 * 100 * 8 * 64, 0x3c00), k = q, v = q, out = q;  // fp16 ones
  auto view = [](std::vector<uint16_t>& data) {
    return tilewright::TensorView{data.data(), tilewright::DataType::fp16, {1, 100, 8, 64}};
  };
  kernel->launch(nullptr, {.q = view(q), .k = view(k), .v = view(v), .out = view(out)});
  std::printf("%s: the last element is %#x\n", describe(kernel->schedule()).c_str(), out.back());
}
