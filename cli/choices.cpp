#include "cli/choices.h"

#include <fmt/format.h>

#include <filesystem>

#include "codegen/error.h"
#include "runtime/device.h"
#include "runtime/driver.h"

namespace tilewright::cli {
namespace {

/// Null without a driver, a device, or a target for it.
const Target* target_of_first_device() {
  const Driver* driver = try_driver();
  CUdevice device = 0;
  int major = 0, minor = 0;
  bool found =
      driver && driver->device_get(&device, 0) == CUDA_SUCCESS &&
      driver->device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) ==
          CUDA_SUCCESS &&
      driver->device_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) == CUDA_SUCCESS;
  return found ? target_for_device(major, minor).target : nullptr;
}

}  // namespace

const Target& chosen_target(const std::string& name) {
  if (!name.empty()) return target_by_name(name);
  const Target* present = target_of_first_device();
  return present ? *present : target_by_name("sm_80");
}

std::optional<GpuModel> gpu_of_target(const Target& target) {
  std::optional<GpuModel> gpu = cuda_gpu_model(0);
  if (gpu && gpu->target != target.name) gpu.reset();
  return gpu;
}

std::vector<const Target*> target_list(const std::string& names) {
  std::vector<const Target*> list;
  if (names == "all") {
    for (const Target& target : targets()) list.push_back(&target);
    return list;
  }
  for (size_t begin = 0; begin <= names.size();) {
    size_t end = std::min(names.find(',', begin), names.size());
    list.push_back(&target_by_name(names.substr(begin, end - begin)));
    begin = end + 1;
  }
  return list;
}

void ShapeOptions::add_to(CLI::App& app, int64_t default_seqlen) {
  seqlen_q = default_seqlen;
  app.add_option("--batch", batch, "Batch size (default 1)");
  app.add_option("--heads", heads, "Query heads (default: one KV head's)");
  app.add_option("--seqlen-q", seqlen_q, fmt::format("Queries (default {})", default_seqlen));
  app.add_option("--seqlen-kv", seqlen_kv, "Keys (default: as many as queries)");
}

LaunchShape ShapeOptions::shape(const AttentionSpec& spec) const {
  LaunchShape shape{batch, heads == 0 ? spec.gqa_ratio : heads, seqlen_q,
                    seqlen_kv < 0 ? seqlen_q : seqlen_kv};
  if (shape.batch < 0 || shape.heads < 0 || shape.seqlen_q < 0) {
    throw Error(ErrorKind::usage, "a batch, head count or length is negative; expected 0 or more");
  }
  if (shape.heads % spec.gqa_ratio != 0) {
    throw Error(
        ErrorKind::usage,
        fmt::format("{} heads are not divisible by the spec's gqa_ratio {}; nearest: {}", shape.heads,
                    spec.gqa_ratio, std::max<int64_t>(1, shape.heads / spec.gqa_ratio) * spec.gqa_ratio));
  }
  return shape;
}

std::string shape_sentence(const AttentionSpec& spec, const LaunchShape& shape) {
  int64_t kv_heads = shape.heads / spec.gqa_ratio;
  return fmt::format("batch {}, {} query head{} over {} KV head{}, {} queries, {} keys", shape.batch,
                     shape.heads, shape.heads == 1 ? "" : "s", kv_heads, kv_heads == 1 ? "" : "s",
                     shape.seqlen_q, shape.seqlen_kv);
}

std::string title_of(const AttentionSpec& spec, const std::string& file) {
  return spec.name.empty() ? std::filesystem::path(file).stem().string() : spec.name;
}

std::string_view name_of(CacheResult from) {
  switch (from) {
    case CacheResult::memory:
      return "memory";
    case CacheResult::bundle:
      return "bundle";
    case CacheResult::disk:
      return "disk";
    case CacheResult::compiled:
      return "compiled";
  }
  return "";
}

}  // namespace tilewright::cli
