#include "codegen/emit_backward.h"

#include "codegen/backward_plan.h"
#include "codegen/families.h"

namespace tilewright {
namespace {

constexpr int prepare_threads = 128;  // templates/backward_prepare.cuh

void add_sm80_constants(Constants& constants, const AttentionSpec& spec, const Schedule& schedule,
                        const Target& target) {
  const sm80_backward::WarpGrids grids = sm80_backward::warp_grids(spec, schedule);
  const auto add_grid = [&](const std::string& name, const sm80_backward::WarpGrid& grid) {
    constants.add_int((name + "_row_warps").c_str(), grid.rows);
    constants.add_int((name + "_column_warps").c_str(), grid.columns);
    constants.add_int((name + "_rows").c_str(), grid.row_fragments);
    constants.add_int((name + "_fragments").c_str(), grid.column_fragments);
  };
  add_grid("score", grids.scores);
  add_grid("dv", grids.dv);
  add_grid("dk", grids.dk);
  add_grid("dq", grids.dq);
  constants.add_bool("wide_sums", target.major >= 9);  // red.v4.f32
}

}  // namespace

void add_backward_constants(Constants& constants, const AttentionSpec& spec, const Schedule& schedule,
                            const Target& target) {
  constants.add_bool("deterministic", spec.deterministic);
  constants.add_int("dq_tile_floats", dq_tile_floats(spec, schedule));
  add_sm80_constants(constants, spec, schedule, target);
}

std::vector<std::string_view> backward_files(Family) {
  return {"primitives/words.cuh",
          "expression_values.cuh",
          "expression_ranges.cuh",
          "expression_key_ranges.cuh",
          "visibility.cuh",
          "no_expressions.cuh",
          "visible_window.cuh",
          "walk_range.cuh",
          "backward_visibility.cuh",
          "quad.cuh",
          "backward_prepare.cuh",
          "sm80/tile.cuh",
          "sm80/backward_products.cuh",
          "sm80/backward_scores.cuh",
          "sm80/backward_output.cuh",
          "sm80/backward.cuh"};
}

void add_backward_kernels(Source& source, const Schedule& schedule) {
  source.before = EntryPoint{"attention_backward_prepare", prepare_threads, 0};
  source.after = EntryPoint{"attention_backward_finish", schedule.threads(), 0};
}

}  // namespace tilewright
