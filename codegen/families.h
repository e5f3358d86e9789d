// What each family of device code says of a schedule: resources, legality, preferences. codegen/schedule.h
// dispatches.
#pragma once

#include <string>
#include <vector>

#include "codegen/schedule.h"

namespace tilewright {

/// Collects reasons why a schedule cannot run.
class Refusals {
 public:
  void add(std::string reason) { reasons_.push_back(std::move(reason)); }
  /// Whether low <= value <= high; if not, says so of blocks.<name>.
  bool in_range(const char* name, int value, int low, int high);
  bool empty() const { return reasons_.empty(); }
  std::vector<std::string> take() { return std::move(reasons_); }

 private:
  std::vector<std::string> reasons_;
};

namespace sm80 {
Resources resources(const AttentionSpec& spec, const Schedule& schedule, const Target& target);
std::vector<std::string> illegal_because(const AttentionSpec& spec, const Schedule& schedule,
                                         const Target& target);
/// In order of preference; the first that is legal is taken. The last fits every supported spec.
std::vector<Schedule> preferred(const AttentionSpec& spec, const Target& target);
std::string reason(const AttentionSpec& spec, const Schedule& schedule, const Target& target);
}  // namespace sm80

namespace sm90 {
Resources resources(const AttentionSpec& spec, const Schedule& schedule);
std::vector<std::string> illegal_because(const AttentionSpec& spec, const Schedule& schedule,
                                         const Target& target);
/// For launches of the bucket.
std::vector<Schedule> preferred(const AttentionSpec& spec, const ShapeBucket& bucket);
std::string reason(const AttentionSpec& spec, const Schedule& schedule, const Target& target);
/// Of a consumer thread and of a producer thread, after they have traded (setmaxnreg).
int consumer_registers(int consumers);
int producer_registers(int consumers);
}  // namespace sm90

}  // namespace tilewright
