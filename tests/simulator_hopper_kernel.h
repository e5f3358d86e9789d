// Real sm90 kernels on the simulator: launched as they were emitted, or with their text changed.
#pragma once

#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "codegen/emit.h"
#include "runtime/arguments.h"
#include "runtime/reference.h"
#include "simulator/host_kernel.h"
#include "simulator/simulator.h"
#include "simulator/tensor_map.h"

namespace tilewright::test {

struct HopperCase {
  std::string spec;
  int heads_kv = 2;
  int seqlen_q = 200;
  int seqlen_kv = 200;
  int blocks = 2;  // or clusters, that share the tiles; 0: one for each tile
};

/// One problem with its tensors.
class HopperProblem {
 public:
  explicit HopperProblem(const HopperCase& test)
      : test_(test),
        spec_(parse_spec(test.spec, "test.yaml")),
        schedule_(choose_schedule(spec_, target_by_name("sm_90a"))),
        source_(emit(spec_, schedule_, target_by_name("sm_90a"), Backend::simulator)) {
    const int heads = test.heads_kv * spec_.gqa_ratio;
    arguments_.q = tensor(q_, heads, test.seqlen_q, spec_.head_dim.qk);
    arguments_.k = tensor(k_, test.heads_kv, test.seqlen_kv, spec_.head_dim.qk);
    arguments_.v = tensor(v_, test.heads_kv, test.seqlen_kv, spec_.head_dim.v);
    arguments_.out = tensor(out_, heads, test.seqlen_q, spec_.head_dim.v);
    std::mt19937 generator(1);
    std::normal_distribution<double> normal;
    for (std::vector<uint16_t>* storage : {&q_, &k_, &v_}) {
      for (size_t i = 0; i < storage->size(); ++i) {
        store_element(storage->data(), spec_.dtype.q, static_cast<int64_t>(i), normal(generator));
      }
    }
    launch_ = prepare_launch(spec_, schedule_, arguments_);
    const bool counts = test.blocks && schedule_.cluster == 1;  // clusters take turns without a counter
    parameters_ = hopper_parameters(launch_, counts ? counters_ : nullptr, tensor_map);
  }
  HopperProblem(const HopperProblem&) = delete;
  HopperProblem& operator=(const HopperProblem&) = delete;

  const Source& source() const { return source_; }

  HostKernel build(const std::string& text) const {
    Source changed = source_;
    changed.text = text;
    return build_host_kernel(changed, SimulatorCompiler::automatic);
  }

  simulator::Report run(const HostKernel& kernel, uint64_t seed, int os_threads = 1) {
    std::fill(out_.begin(), out_.end(), uint16_t{0xffff});
    counters_[0] = counters_[1] = 0;
    simulator::Launch run;
    run.kernel_name = source_.kernel_name;
    run.thunk = kernel.thunk;
    run.bind = kernel.bind;
    run.parameters = &parameters_;
    run.grid = test_.blocks ? test_.blocks : launch_.plan.tiles;
    run.grid *= run.cluster = schedule_.cluster;
    run.threads = source_.threads;
    run.shared_memory = source_.shared_memory;
    run.seed = seed;
    run.os_threads = os_threads;
    run.buffers = {buffer("q", q_, false), buffer("k", k_, false), buffer("v", v_, false),
                   buffer("out", out_, true)};
    run.buffers.push_back({.data = counters_,
                           .bytes = sizeof counters_,
                           .name = "counters",
                           .writable = true,
                           .counters = true});
    return simulator::run(run);
  }

  Verdict verdict() const { return compare_forward(spec_, arguments_); }
  bool counters_are_zero() const { return counters_[0] == 0 && counters_[1] == 0; }

 private:
  // Elements around each tensor: a tile too far must not land in a neighbour by chance.
  static constexpr size_t margin = 1 << 16;

  TensorView tensor(std::vector<uint16_t>& storage, int64_t heads, int64_t length, int64_t width) const {
    storage.resize(2 * margin + heads * length * width);
    TensorView view;
    view.data = storage.data() + margin;
    view.dtype = spec_.dtype.q;
    view.shape = {1, length, heads, width};
    return view;
  }
  static simulator::Buffer buffer(const char* name, std::vector<uint16_t>& storage, bool output) {
    return {storage.data() + margin, (storage.size() - 2 * margin) * sizeof(uint16_t), name, output, !output};
  }
  static TensorMap tensor_map(const TensorMapRequest& request) {
    simulator::SimulatedTensorMap map{.base = request.data, .element_bytes = 2};
    for (int i = 0; i < 4; ++i) map.extents[i] = static_cast<int64_t>(request.sizes[i]);
    for (int i = 0; i < 3; ++i) map.strides[i] = static_cast<int64_t>(request.strides[i]);
    const bool folded = request.box_heads > 1;
    const int rows = static_cast<int>(request.box_rows), heads = static_cast<int>(request.box_heads);
    const int box[4] = {64, folded ? heads : rows, folded ? rows : 1, 1};
    std::copy(box, box + 4, map.box);
    TensorMap encoded;
    simulator::encode(map, &encoded);
    return encoded;
  }

  HopperCase test_;
  AttentionSpec spec_;
  Schedule schedule_;
  Source source_;
  std::vector<uint16_t> q_, k_, v_, out_;
  ForwardArguments arguments_;
  PreparedLaunch launch_;
  HopperForwardParameters parameters_;
  int counters_[2] = {};
};

}  // namespace tilewright::test
