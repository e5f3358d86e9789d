// tilewright targets: the table of GPU generations.
#include "codegen/target.h"

#include <fmt/format.h>

#include <memory>

#include "cli/command.h"
#include "cli/output.h"

namespace tilewright::cli {
namespace {

/// Instruction families, the newest last; every target has the sm80 family's.
std::vector<std::string> instructions_of(const Target& target) {
  std::vector<std::string> list = {"mma.sync"};
  if (target.tma) list.push_back("tma");
  if (target.wgmma) list.push_back("wgmma");
  if (target.tcgen05) list.push_back("tcgen05");
  return list;
}

void print_table() {
  Table table({"target", "generation", "capability", "shared/block", "shared/SM", "registers/SM", "warps/SM",
               "blocks/SM", "instructions"});
  for (const Target& target : targets()) {
    table.add({std::string(target.name), std::string(target.generation),
               fmt::format("{}.{}", target.major, target.minor),
               fmt::format("{} B", target.shared_memory_per_block),
               fmt::format("{} B", target.shared_memory_per_sm), fmt::format("{}", target.registers_per_sm),
               fmt::format("{}", target.max_warps_per_sm), fmt::format("{}", target.max_blocks_per_sm),
               fmt::format("{}", fmt::join(instructions_of(target), " "))});
  }
  table.print();
}

Json as_json() {
  Json list = Json::array();
  for (const Target& target : targets()) {
    list.push_back({{"name", target.name},
                    {"generation", target.generation},
                    {"compute_capability", fmt::format("{}.{}", target.major, target.minor)},
                    {"shared_memory_per_block", target.shared_memory_per_block},
                    {"shared_memory_per_sm", target.shared_memory_per_sm},
                    {"registers_per_sm", target.registers_per_sm},
                    {"max_warps_per_sm", target.max_warps_per_sm},
                    {"max_blocks_per_sm", target.max_blocks_per_sm},
                    {"instructions", instructions_of(target)}});
  }
  return list;
}

}  // namespace

Command add_targets(CLI::App& root) {
  CLI::App* app = root.add_subcommand("targets", "List the GPU generations that kernels can be made for");
  auto json = std::make_shared<bool>(false);
  app->add_flag("--json", *json, "Print JSON");
  return {app, [json] {
            if (*json) {
              print_json(as_json());
            } else {
              print_table();
            }
            return exit_ok;
          }};
}

}  // namespace tilewright::cli
