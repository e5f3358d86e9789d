#include "runtime/expression_tables.h"

#include "runtime/workspace.h"

namespace tilewright {

PreparedTables prepare_tables(const AttentionSpec& spec, const Schedule& schedule, const LaunchShape& shape,
                              const ForwardArguments& arguments) {
  PreparedTables prepared{};
  const std::vector<Expression> look_ups = look_up_tables(spec);
  prepared.entries = table_entries(look_ups, schedule, shape);
  prepared.are_filled = arguments.tensors_unchanged;
  check_workspace(prepared.bytes(), arguments.workspace, arguments.workspace_bytes);
  int* entries = static_cast<int*>(arguments.workspace);
  for (const Expression& look_up : look_ups) {
    const TableShape table = table_shape(look_up, schedule, shape);
    prepared.tables[prepared.count++] = {entries, static_cast<int>(table.batches),
                                         static_cast<int>(table.heads), static_cast<int>(table.tiles)};
    entries += table.entries() * table_entry_bytes / 4;
  }
  return prepared;
}

}  // namespace tilewright
