#include "codegen/look_up_tables.h"

#include <algorithm>

#include "codegen/error.h"
#include "codegen/expression_cuda.h"

namespace tilewright {
namespace {

using Variable = ExpressionVariable;

void collect(const Expression& expression, std::vector<Expression>& tables) {
  const bool one_side = expression.uses(Variable::kv) != expression.uses(Variable::q);
  if (expression.operation() == Operation::look_up && one_side) {
    if (tables.size() < most_tables && std::find(tables.begin(), tables.end(), expression) == tables.end())
      tables.push_back(expression);
    return;
  }
  for (const Expression& operand : expression.operands()) collect(operand, tables);
}

std::string table_name(size_t number) {
  return "table_" + std::to_string(number);
}

constexpr const char* function_start = "__device__ __forceinline__ ";

std::string type_name(const Expression& look_up) {
  const ValueType type = look_up.type();
  return type == ValueType::boolean ? "bool" : type == ValueType::integer ? "int" : "float";
}

std::string range_type(const Expression& look_up) {
  const ValueType type = look_up.type();
  return type == ValueType::boolean ? "Truth" : type == ValueType::integer ? "IntRange" : "FloatRange";
}

std::string nothing_yet(const Expression& look_up) {
  return "no_" + type_name(look_up) + "s";
}

/// NAME_at: the look-up itself.
std::string value_at(const Expression& look_up, const std::string& name) {
  return value_function(type_name(look_up) + " " + name + "_at(const Scope& scope, int " +
                            (is_by_key(look_up) ? "kv" : "q") + ")",
                        look_up);
}

}  // namespace

std::vector<Expression> look_up_tables(const AttentionSpec& spec) {
  std::vector<Expression> tables;
  if (spec.mask.kind != Mask::Kind::expression || spec.mask.blocks || spec.layout == Layout::packed)
    return tables;
  collect(*spec.mask.expression, tables);
  const auto by_row = [](const Expression& look_up) { return !is_by_key(look_up); };
  if (spec.pass == Pass::backward)
    tables.erase(std::remove_if(tables.begin(), tables.end(), by_row), tables.end());
  else if (std::all_of(tables.begin(), tables.end(), by_row))
    tables.clear();
  return tables;
}

TableShape table_shape(const Expression& look_up, const Schedule& schedule, const LaunchShape& shape) {
  TableShape table;
  if (look_up.uses(Variable::batch)) table.batches = shape.batch;
  if (look_up.uses(Variable::head) || look_up.uses(Variable::kv_head)) table.heads = shape.heads;
  const int64_t length = is_by_key(look_up) ? shape.seqlen_kv : shape.seqlen_q;
  const int64_t size = is_by_key(look_up) ? schedule.block_n : schedule.positions();
  table.tiles = (length + size - 1) / size;
  return table;
}

int64_t table_entries(const std::vector<Expression>& tables, const Schedule& schedule,
                      const LaunchShape& shape) {
  constexpr __int128 most = INT32_MAX;  // what one grid fills
  __int128 entries = 0;
  for (const Expression& look_up : tables) {
    const TableShape table = table_shape(look_up, schedule, shape);
    entries += static_cast<__int128>(table.batches * table.heads) * table.tiles;
  }
  if (entries > most)
    throw Error(ErrorKind::usage,
                "batch " + std::to_string(shape.batch) + ", heads " + std::to_string(shape.heads) +
                    " and lengths " + std::to_string(shape.seqlen_q) + " and " +
                    std::to_string(shape.seqlen_kv) +
                    " need more than 2147483647 entries in the tables of the mask's look-ups");
  return static_cast<int64_t>(entries);
}

std::string table_functions(const Expression& look_up, size_t number) {
  const std::string name = table_name(number);
  return value_at(look_up, name) + "\n/// " + to_text(look_up) + "\n" + function_start + range_type(look_up) +
         " " + name + "_range(const Scope& scope, int tile) {\n  return " + type_name(look_up) +
         "_table_range(table_entry(scope.arguments." + name + ", scope.batch, scope.head, tile));\n}\n\n";
}

std::string key_look_ups(const std::vector<Expression>& tables) {
  std::string functions, members, start, step;
  for (size_t i = 0; i < tables.size(); ++i) {
    const std::string name = table_name(i);
    functions += value_at(tables[i], name) + "\n";
    members += "  " + range_type(tables[i]) + " " + name + ";  // " + to_text(tables[i]) + "\n";
    start += (i ? ", " : "") + nothing_yet(tables[i]);
    step += "    found." + name + " = with_value(found." + name + ", " + name + "_at(scope, kv));\n";
  }
  const std::string head = functions +
                           "/// The mask's look-ups by key, over a tile of keys.\nstruct KeyLookUps {\n" +
                           members + "};\n\n" + function_start + "KeyLookUps look_up_keys(const Scope&";
  if (tables.empty()) return head + ", int, int) {\n  return {};\n}\n\n";
  return head + " scope, int key, int last_key) {\n  KeyLookUps found = {" + start +
         "};\n#pragma unroll 4\n  for (int kv = key; kv <= last_key; ++kv) {\n" + step +
         "  }\n  return found;\n}\n\n";
}

std::string table_kernel(const std::vector<Expression>& tables) {
  std::string text =
      "/// Fills the tables, an entry each warp.\nextern \"C\" __global__ void "
      "__launch_bounds__(table_threads)\n    " +
      std::string(table_kernel_name) +
      "(const __grid_constant__ ForwardParameters p,\n                             const __grid_constant__ "
      "ExpressionArguments e) {\n"
      "  long long index = (long long)block_index() * (table_threads / 32) + thread_index() / 32;\n";
  for (size_t i = 0; i < tables.size(); ++i) {
    const std::string name = table_name(i);
    text += "  index = fill_table(p, e, e." + name +
            (is_by_key(tables[i]) ? ", tiles_of_keys(p)" : ", tiles_of_rows(p)") + ", index, " +
            nothing_yet(tables[i]) + ",\n                     [](const Scope& scope, int at) { return " +
            name + "_at(scope, at); });\n";
  }
  return text + "}\n";
}

}  // namespace tilewright
