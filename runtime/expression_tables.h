// The tables of a mask's look-ups (codegen/look_up_tables.h), as a launch lays them out in its workspace.
#pragma once

#include "codegen/look_up_tables.h"
#include "runtime/forward_parameters.h"
#include "runtime/include/tilewright/tilewright.hpp"

namespace tilewright {

struct PreparedTables {
  ExpressionTable tables[most_tables];
  size_t count = 0;
  int64_t entries = 0;      // of all, one after the other from the start of the workspace
  bool are_filled = false;  // by a launch before, says the caller

  /// Of the kernel that fills them; 0: it need not run.
  int64_t blocks() const {
    constexpr int64_t of_a_block = table_threads / 32;
    return are_filled ? 0 : (entries + of_a_block - 1) / of_a_block;
  }
  int64_t bytes() const { return entries * table_entry_bytes; }
};

/// Throws Error(usage) for a workspace that is missing or too small.
PreparedTables prepare_tables(const AttentionSpec& spec, const Schedule& schedule, const LaunchShape& shape,
                              const ForwardArguments& arguments);

}  // namespace tilewright
