#include "runtime/compile_limits.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace tilewright {
namespace {

// What NVRTC takes for a large kernel, with room; and what is left for everybody else.
constexpr int64_t bytes_a_compile = int64_t{512} << 20, bytes_left_alone = int64_t{1} << 30;

int64_t first_number(const std::string& file) {
  std::ifstream stream(file);
  int64_t value = -1;
  return stream >> value ? value : -1;
}

}  // namespace

int compiles_at_once(int cores, int64_t available_bytes) {
  if (available_bytes < 0) return std::max(1, cores);
  const int64_t fit = (available_bytes - bytes_left_alone) / bytes_a_compile;
  return static_cast<int>(std::clamp<int64_t>(fit, 1, std::max(1, cores)));
}

int64_t available_memory() {
  int64_t available = -1;
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);)
    if (line.rfind("MemAvailable:", 0) == 0) available = std::stoll(line.substr(13)) * 1024;
  // "max" reads as no number: there is no limit then.
  const int64_t limit = first_number("/sys/fs/cgroup/memory.max");
  const int64_t used = first_number("/sys/fs/cgroup/memory.current");
  if (limit >= 0 && used >= 0) {
    const int64_t rest = std::max<int64_t>(0, limit - used);
    available = available < 0 ? rest : std::min(available, rest);
  }
  return available;
}

}  // namespace tilewright
