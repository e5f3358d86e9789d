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

/// What one family says of one pass.
struct FamilyRules {
  Resources (*resources)(const AttentionSpec&, const Schedule&, const Target&);
  std::vector<std::string> (*illegal_because)(const AttentionSpec&, const Schedule&, const Target&);
  /// In order of preference; the first that is legal is taken.
  std::vector<Schedule> (*preferred)(const AttentionSpec&, const Target&, const ShapeBucket&);
  std::string (*reason)(const AttentionSpec&, const Schedule&, const Target&);
};
/// Null: the family has no kernels for the pass.
const FamilyRules* family_rules(Pass pass, Family family);
/// A tile lies within one block of the caller's list (mask.blocks), and a block is made of whole tiles.
void refuse_unlike_list(Refusals& refusals, const AttentionSpec& spec, const Schedule& schedule);

/// A query sees fewer than 256 keys.
bool has_narrow_window(const AttentionSpec& spec);
/// Few tiles through a narrow window are latency alone: small blocks of the sm80 family, each on its own,
/// beat the sm90 family's by 41 % at head dim 64 on an H200.
bool tiny_blocks(const AttentionSpec& spec, const Target& target, const ShapeBucket& bucket);

namespace sm80 {
Resources resources(const AttentionSpec& spec, const Schedule& schedule, const Target& target);
std::vector<std::string> illegal_because(const AttentionSpec& spec, const Schedule& schedule,
                                         const Target& target);
/// In order of preference; the first that is legal is taken. The last fits every supported spec.
std::vector<Schedule> preferred(const AttentionSpec& spec, const Target& target, const ShapeBucket& bucket);
std::string reason(const AttentionSpec& spec, const Schedule& schedule, const Target& target);
}  // namespace sm80

/// The backward pass of a family. To serve it, a family gives these rules, `dq_tile_floats` (codegen/
/// backward_plan.h), constants and files (codegen/emit_backward.cpp), and templates with the kernels
/// `attention_backward` and `attention_backward_finish` (templates/backward_parameters.cuh).
namespace sm80_backward {
Resources resources(const AttentionSpec& spec, const Schedule& schedule, const Target& target);
std::vector<std::string> illegal_because(const AttentionSpec& spec, const Schedule& schedule,
                                         const Target& target);
std::vector<Schedule> preferred(const AttentionSpec& spec, const Target& target, const ShapeBucket& bucket);
std::string reason(const AttentionSpec& spec, const Schedule& schedule, const Target& target);

/// How a block's warps share a product's result: `rows` times `columns` warps, each with fragments of 16
/// x 16. Rows divide evenly; the last warps of a row may have fewer columns.
struct WarpGrid {
  int rows = 0, columns = 0;
  int row_fragments = 0, column_fragments = 0;  // of one warp, at most
  int registers() const { return 8 * row_fragments * column_fragments; }
};
struct WarpGrids {
  WarpGrid scores, dv, dk, dq;
};
/// All zero if the warps cannot share the tile.
WarpGrids warp_grids(const AttentionSpec& spec, const Schedule& schedule);
}  // namespace sm80_backward

namespace sm90 {
Resources resources(const AttentionSpec& spec, const Schedule& schedule, const Target& target);
std::vector<std::string> illegal_because(const AttentionSpec& spec, const Schedule& schedule,
                                         const Target& target);
std::vector<Schedule> preferred(const AttentionSpec& spec, const Target& target, const ShapeBucket& bucket);
std::string reason(const AttentionSpec& spec, const Schedule& schedule, const Target& target);
/// Of a consumer thread and of a producer thread, after they have traded (setmaxnreg).
int consumer_registers(int consumers);
int producer_registers(int consumers);
/// How many tiles of query rows shared memory holds: two where they fit, so that the next one arrives early.
int query_slots(const AttentionSpec& spec, const Schedule& schedule, const Target& target);
}  // namespace sm90

/// The backward pass of the sm90 family: two consumers.
namespace sm90_backward {
Resources resources(const AttentionSpec& spec, const Schedule& schedule, const Target& target);
std::vector<std::string> illegal_because(const AttentionSpec& spec, const Schedule& schedule,
                                         const Target& target);
std::vector<Schedule> preferred(const AttentionSpec& spec, const Target& target, const ShapeBucket& bucket);
std::string reason(const AttentionSpec& spec, const Schedule& schedule, const Target& target);
/// The consumers share a tile of 64 keys, each with half of the columns of dK and dV; else each has 64 keys.
bool splits_columns(const Schedule& schedule);
/// The order of products where none is asked for.
int default_order(const AttentionSpec& spec, const Schedule& schedule);
constexpr int warps = 12;  // two consumers and the producer
/// Columns of dV, dK and dQ that one consumer computes. Where each has its own keys, both share dQ: of 64
/// query rows the columns, of 128 the rows.
int dv_columns(const AttentionSpec& spec, const Schedule& schedule);
int dk_columns(const AttentionSpec& spec, const Schedule& schedule);
int dq_columns(const AttentionSpec& spec, const Schedule& schedule);
/// Floats that a tile of query rows takes in the workspace.
int dq_tile_floats(const AttentionSpec& spec, const Schedule& schedule);
/// Of a consumer thread and of a producer thread, after they have traded (setmaxnreg).
int consumer_registers(const Schedule& schedule);
int producer_registers(const Schedule& schedule);
}  // namespace sm90_backward

}  // namespace tilewright
