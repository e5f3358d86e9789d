#include "codegen/emit_backward.h"

#include "codegen/backward_order.h"
#include "codegen/backward_plan.h"
#include "codegen/backward_products.h"
#include "codegen/error.h"
#include "codegen/families.h"

namespace tilewright {
namespace {

constexpr int prepare_threads = 128;
constexpr int sm90_finish_threads = 256;

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

void add_sm90_constants(Constants& constants, const AttentionSpec& spec, const Schedule& schedule) {
  const bool splits_columns = sm90_backward::splits_columns(schedule);
  const BackwardOrder& order = backward_orders()[schedule.order];
  constants.add_bool("splits_columns", splits_columns);
  constants.add_int("score_rows", splits_columns ? schedule.block_m / 2 : schedule.block_m);
  constants.add_int("dv_columns", sm90_backward::dv_columns(spec, schedule));
  constants.add_int("dk_columns", sm90_backward::dk_columns(spec, schedule));
  constants.add_int("dq_columns", sm90_backward::dq_columns(spec, schedule));
  constants.add_bool("first_differs", first_block_differs(order));
  constants.add_bool("last_differs", last_block_differs(order));
  constants.add_bool("with_turns", has_step(order, "take"));
  constants.add_int("producer_registers", sm90_backward::producer_registers(schedule));
  constants.add_int("consumer_registers", sm90_backward::consumer_registers(schedule));
  constants.add_int("finish_threads", sm90_finish_threads);
}

}  // namespace

void add_backward_constants(Constants& constants, const AttentionSpec& spec,
                            const KernelExpressions& expressions, const Schedule& schedule,
                            const Target& target) {
  constants.add_int("prepare_threads", prepare_threads);
  constants.add_bool("deterministic", spec.deterministic);
  constants.add_bool("with_bias_gradient", spec.bias_gradient);
  constants.add_int("turns_per_tile", turns_per_tile(schedule));
  constants.add_bool("mask_knows_heads", expressions.mask_knows_heads());
  const bool with_slope = expressions.has_slope(), differentiates = expressions.score && with_slope;
  constants.add_bool("with_slope", with_slope);
  constants.add_bool("differentiates_scores", differentiates);
  constants.add_bool("changes_scores_plainly",
                     (expressions.softcap != 0 || expressions.score) && !differentiates);
  constants.add_int("dq_tile_floats", dq_tile_floats(spec, schedule));
  constants.add_bool("shifts_enormous_lse", schedule.family == Family::sm90);
  if (schedule.family == Family::sm90)
    add_sm90_constants(constants, spec, schedule);
  else
    add_sm80_constants(constants, spec, schedule, target);
}

std::vector<std::string_view> backward_files(const AttentionSpec& spec, Family family,
                                             const KernelExpressions& expressions) {
  const bool hopper = family == Family::sm90, ranges = expressions.mask.has_value();
  const bool packed = spec.layout == Layout::packed;
  std::vector<std::string_view> files;
  const auto add = [&](std::initializer_list<std::string_view> more) { files.insert(files.end(), more); };
  if (hopper) add({"sm90/parameters.cuh", "sm90/backward_parameters.cuh"});
  add({"primitives/words.cuh"});
  if (hopper) add({"primitives/sm90.cuh", "primitives/sm90_bulk.cuh", "generated/products"});
  add({"expression_parameters.cuh", "expression_values.cuh", "expression_ranges.cuh",
       "expression_key_ranges.cuh", "visibility.cuh", "softcap.cuh", "generated/expressions",
       packed ? "packed.cuh" : "backward_sequence.cuh",
       packed ? "backward_rows_packed.cuh" : "backward_rows.cuh"});
  if (ranges)
    add({"visible_rule.cuh", "backward_ranges.cuh",
         packed ? "backward_range_search_packed.cuh" : "backward_range_search.cuh"});
  else if (!hopper)
    add({"visible_window.cuh", "walk_range.cuh"});
  add({"quad.cuh", "sinks.cuh", "backward_sinks.cuh", "dropout_numbers.cuh", "dropout.cuh",
       "backward_prepare.cuh"});
  if (expressions.any()) add({"backward_bias.cuh"});
  if (hopper)
    add({"sm90/ring.cuh", "sm90/backward_layout.cuh", "sm90/backward_tiles.cuh",
         ranges ? "sm90/backward_ranges.cuh" : "sm90/backward_rows.cuh", "sm90/backward_producer.cuh",
         "sm90/backward_scores.cuh", "sm90/backward_dropout.cuh", "sm90/backward_output.cuh",
         "sm90/backward_consumer.cuh", "sm90/backward_turns.cuh",
         expressions.any() ? "sm90/backward_expressions.cuh" : "sm90/backward_softcap.cuh", "generated/order",
         "sm90/backward_tile.cuh", "sm90/backward.cuh"});
  else
    add({"sm80/tile.cuh", packed ? "sm80/backward_place_packed.cuh" : "sm80/backward_place.cuh",
         ranges ? "sm80/backward_ranges.cuh" : "backward_visibility.cuh", "sm80/backward_products.cuh",
         "sm80/backward_scores.cuh", "sm80/backward_dropout.cuh",
         expressions.any() ? "sm80/backward_expressions.cuh" : "sm80/backward_softcap.cuh",
         "sm80/backward_output.cuh", "sm80/backward.cuh"});
  return files;
}

GeneratedPart generated_part(std::string_view name, const AttentionSpec& spec, const Schedule& schedule,
                             Backend backend) {
  if (name == "generated/products")
    return {"The matrix products in this kernel's shape", backward_products(spec, schedule, backend)};
  if (name == "generated/order")
    return {"A block of query rows, its products in this schedule's order",
            parse_template(backward_loop(backward_orders()[schedule.order], spec.dropout, spec.bias_gradient),
                           backend)};
  throw Error(ErrorKind::internal, "no part " + std::string(name));
}

void add_backward_kernels(Source& source, const Schedule& schedule) {
  source.before = EntryPoint{"attention_backward_prepare", prepare_threads, 0};
  source.after = EntryPoint{"attention_backward_finish",
                            schedule.family == Family::sm90 ? sm90_finish_threads : schedule.threads(), 0};
}

}  // namespace tilewright
