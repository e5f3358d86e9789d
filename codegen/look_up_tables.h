// Tables of the smallest and largest value of a mask's look-ups over each tile of keys or query rows: in the
// forward pass a kernel before the main one fills them, and the mask's interval analysis reads them.
#pragma once

#include <string>
#include <vector>

#include "codegen/schedule.h"
#include "codegen/spec.h"

#pragma GCC visibility push(default)  // exported by libtilewright.so
namespace tilewright {

/// More look-ups than these have no table: they may be anything as far as the analysis knows.
inline constexpr size_t most_tables = 16;

/// The outermost look-ups of a spec's mask that depend on kv or on q but not on both, each once. None where
/// no look-up depends on kv alone: those by q are then looked through by the kernel itself, as they always
/// are in the backward pass. None with layout packed and with mask.blocks.
std::vector<Expression> look_up_tables(const AttentionSpec& spec);

/// Of a table: whether its tiles are of keys, not of query rows.
inline bool is_by_key(const Expression& look_up) {
  return look_up.uses(ExpressionVariable::kv);
}

/// What a table holds for a launch: an entry for each tile of each head and batch that it depends on.
struct TableShape {
  int64_t batches = 1, heads = 1, tiles = 0;
  int64_t entries() const { return batches * heads * tiles; }
};
TableShape table_shape(const Expression& look_up, const Schedule& schedule, const LaunchShape& shape);

inline constexpr int64_t table_entry_bytes = 8;

/// Of all tables of a launch. Throws Error(usage) if they are more than a launch can fill.
int64_t table_entries(const std::vector<Expression>& tables, const Schedule& schedule,
                      const LaunchShape& shape);

/// The kernel that fills them, an entry each warp.
inline constexpr int table_threads = 128;  // templates/fill_tables.cuh
inline constexpr const char* table_kernel_name = "attention_forward_tables";
std::string table_kernel(const std::vector<Expression>& tables);

/// A look-up's declarations for that kernel and for the analysis: table_N_at, table_N_range.
std::string table_functions(const Expression& look_up, size_t number);

/// In the backward pass the kernel that looks for the rows of a tile of keys holds what tables would hold of
/// it: KeyLookUps, of look_up_keys.
std::string key_look_ups(const std::vector<Expression>& tables);

}  // namespace tilewright
#pragma GCC visibility pop
