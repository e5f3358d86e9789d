// tilewright explain: the schedule and why, what a block takes, and what a launch computes and moves.
#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "cli/choices.h"
#include "cli/command.h"
#include "cli/expression_inputs.h"
#include "cli/output.h"
#include "cli/tile_map_drawing.h"
#include "codegen/backward_plan.h"
#include "codegen/io_model.h"
#include "runtime/build.h"
#include "tilewright/tilewright.hpp"

namespace tilewright::cli {
namespace {

struct Options {
  std::string file;
  std::string target;
  ShapeOptions shape;
  ExpressionOptions expressions;
  std::string svg;
  bool no_compile = false;
  bool json = false;
};

struct Explanation {
  AttentionSpec spec;
  const Target& target;
  BucketSchedules schedules;
  ScheduleDecision decision;
  Schedule schedule;  // of the shape's bucket
  Resources resources;
  LaunchShape shape;
  LaunchPlan plan;
  IoModel model;
  TileMap map;
  std::optional<BackwardPlan> backward;
  std::optional<CompileReport> measured;
  std::string not_measured;  // why
};

void write_picture(const std::string& file, const std::string& svg) {
  std::ofstream stream(file, std::ios::binary | std::ios::trunc);
  stream << svg;
  stream.close();
  if (!stream) throw Error(ErrorKind::environment, file + " cannot be written");
}

Explanation explain(const Options& options) {
  AttentionSpec spec = load_spec(options.file);
  const Target& target = chosen_target(options.target);
  LaunchShape shape = options.shape.shape(spec);
  const TuningRecords records = usable_records({});
  const std::optional<GpuModel> gpu = gpu_of_target(target);
  BucketSchedules schedules = tuned_schedules(spec, target, gpu ? &*gpu : nullptr, records);
  ScheduleDecision decision = records.decide(spec, target, gpu ? &*gpu : nullptr, bucket_of(shape));
  Schedule schedule = decision.schedule;
  const MaskInputs inputs = known_inputs(spec, shape, options.expressions);
  Explanation result{spec,
                     target,
                     schedules,
                     decision,
                     schedule,
                     resources(spec, schedule, target),
                     shape,
                     plan_launch(spec, schedule, shape),
                     model_io(spec, schedule, shape, inputs),
                     tile_map(spec, schedule, shape, inputs),
                     std::nullopt,
                     std::nullopt,
                     "--no-compile"};
  if (spec.pass == Pass::backward)
    result.backward = plan_backward(spec, schedule, all_sequences(spec, shape));
  if (options.no_compile) return result;
  try {
    result.measured = compile(spec, schedule, target).report;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::environment) throw;
    result.not_measured = error.what();
  }
  return result;
}

int warps_per_sm(const Explanation& e) {
  return e.resources.blocks_per_sm * e.schedule.warps;
}

/// Which step of the look-up gave the schedule: "record of NVIDIA H100, same generation".
std::string source_text(const ScheduleDecision& decision) {
  if (decision.source == ScheduleSource::record) return "record of " + decision.gpu;
  if (decision.source == ScheduleSource::similar_gpu)
    return "record of " + decision.gpu + ", same generation";
  return std::string(name_of(decision.source));
}

/// "short: m 128, …" for each schedule that launches of other shapes run.
std::vector<std::string> other_variants(const Explanation& e) {
  std::vector<std::string> lines;
  for (const Schedule& schedule : e.schedules.distinct()) {
    if (schedule == e.schedule) continue;
    std::string buckets;
    for (const ShapeBucket& bucket : shape_buckets()) {
      if (e.schedules.by_bucket[index_of(bucket)] == schedule)
        buckets += (buckets.empty() ? "" : ", ") + std::string(bucket.name);
    }
    lines.push_back(buckets + ": " + describe(schedule));
  }
  return lines;
}

/// Why this shape gets this schedule, where others get another one.
std::string bucket_text(const Explanation& e) {
  const ShapeBucket& bucket = bucket_of(e.shape);
  return fmt::format("{} ({})", bucket.name, bucket.meaning);
}

std::string registers_text(const Explanation& e) {
  std::string text =
      fmt::format("{} per thread for output, scores and Q fragments", e.resources.accumulator_registers);
  if (!e.measured) return text + "; not measured: " + e.not_measured;
  return text + fmt::format("; {} in all and {} bytes spilled, says {}", e.measured->registers,
                            e.measured->spill_bytes, e.measured->compiler);
}

std::string grid_text(const Explanation& e) {
  const std::string tiles =
      fmt::format("{} query tiles{} a head", e.plan.m_tiles, e.schedule.cluster > 1 ? " of a cluster" : "");
  if (e.schedule.family == Family::sm80)
    return fmt::format("{} blocks of {} threads, {}", e.plan.tiles, e.schedule.threads(), tiles);
  return fmt::format("a block of {} threads per SM, {}, {} in all; they share them, {} head{} at a time",
                     e.schedule.threads(), tiles, e.plan.tiles, e.plan.section_heads,
                     e.plan.section_heads == 1 ? "" : "s");
}

/// Five products a visible pair: S, dP, dV, dK and dQ.
double backward_work(const Explanation& e) {
  return e.model.work.visible_pairs * 2 * (3.0 * e.spec.head_dim.qk + 2.0 * e.spec.head_dim.v);
}

void print_backward(const Explanation& e) {
  const BackwardPlan& plan = *e.backward;
  const TileCounts& tiles = e.model.tiles;
  print_field("grid",
              fmt::format("{} blocks of {} threads, a tile of keys of one KV head each; before and after "
                          "them {}, a tile of query rows each",
                          plan.key_blocks, e.schedule.threads(), plan.query_blocks));
  print_field("tiles", fmt::format("{} visited a query head, {} of them with a mask; {} skipped",
                                   tiles.visited, tiles.masked, tiles.skipped));
  print_field("work", flops_text(backward_work(e)) + " needed, 2 (3 qk + 2 v) per visible pair");
  print_field("dQ",
              e.spec.deterministic
                  ? "added up from the last keys to the first: the same bits on every run"
                  : "added up in whatever order tiles finish: its last bits may differ from run to run");
  print_field("memory",
              fmt::format("{} beside the tensors at the peak, linear in the lengths: {} for the sums of dQ, "
                          "{} for LSE, row terms and turns",
                          bytes_text(static_cast<double>(plan.workspace.bytes)),
                          bytes_text(static_cast<double>(plan.workspace.lse_log2)),
                          bytes_text(static_cast<double>(plan.workspace.bytes - plan.workspace.lse_log2))));
}

void print_text(const Options& options, const Explanation& e) {
  const TileCounts& tiles = e.model.tiles;
  const Work& work = e.model.work;
  const Traffic& traffic = e.model.traffic;
  print_field("spec", title_of(e.spec, options.file));
  print_field("target", fmt::format("{}, {}", e.target.name, e.target.generation));
  print_field("schedule", "family " + describe(e.schedule));
  print_field("from", source_text(e.decision));
  print_field("why", e.decision.reason);
  for (const std::string& skipped : e.decision.skipped) print_field("skipped", "record " + skipped);
  const std::vector<std::string> others = other_variants(e);
  if (!others.empty()) print_field("bucket", bucket_text(e));
  for (const std::string& other : others) print_field("other", other);
  print_field("shared", fmt::format("{} of {} bytes a block", e.resources.shared_memory,
                                    e.target.shared_memory_per_block));
  print_field("registers", registers_text(e));
  print_field("occupancy", fmt::format("{} blocks per SM, {} of {} warps ({:.0f} %)",
                                       e.resources.blocks_per_sm, warps_per_sm(e), e.target.max_warps_per_sm,
                                       100.0 * warps_per_sm(e) / e.target.max_warps_per_sm));
  fmt::print("\n");
  print_field("shape", shape_sentence(e.spec, e.shape));
  if (e.backward) return print_backward(e);
  print_field("grid", grid_text(e));
  if (const int64_t bytes = workspace_size(e.spec, e.schedule, e.shape); bytes > 0)
    print_field("tables",
                fmt::format("of what the mask looks up over each tile, filled by a kernel before: {} of "
                            "workspace",
                            bytes_text(static_cast<double>(bytes))));
  print_field("tiles", fmt::format("{} visited a head, {} of them with a mask; {} skipped ({:.1f} %)",
                                   tiles.visited, tiles.masked, tiles.skipped, 100 * e.map.skipped_share()));
  print_field("work", fmt::format("{} needed, 2 (qk + v) per visible pair; {} done in whole tiles",
                                  flops_text(work.needed), flops_text(work.done)));
  fmt::print("\nTiles, `.` skipped, `/` with a mask, `#` without (queries down, keys to the right):\n{}",
             drawn_as_text(e.map, 32));
  fmt::print("\nDevice memory, by calculation:\n");
  Table table({"  bytes", "tiled, perfect L2", "tiled, no L2", "materialising S and P"});
  auto row = [&](const char* name, double least, double most, double materialising) {
    table.add({name, bytes_text(least), bytes_text(most), bytes_text(materialising)});
  };
  row("  Q read", traffic.queries, traffic.queries, traffic.queries);
  row("  K, V read", traffic.keys_once, traffic.keys_reread, traffic.keys_once);
  row("  S, P written and read", 0, 0, traffic.scores);
  row("  output written", traffic.output, traffic.output, traffic.output);
  row("  all", traffic.tiled_least(), traffic.tiled_most(), traffic.materialising());
  table.print();
  fmt::print(
      "  K and V once per KV head (perfect L2), or once per query tile and query head (no L2): rows that "
      "some tile\n"
      "  visits, times (qk + v) elements. S and P: 4 times heads x queries x keys, after the FlashAttention "
      "paper.\n");
}

Json as_json(const Options& options, const Explanation& e) {
  Json json = {{"spec", title_of(e.spec, options.file)},
               {"target", e.target.name},
               {"schedule",
                {{"family", name_of(e.schedule.family)},
                 {"m", e.schedule.block_m},
                 {"n", e.schedule.block_n},
                 {"warps", e.schedule.warps},
                 {"stages", e.schedule.stages},
                 {"query_in_registers", e.schedule.query_in_registers},
                 {"ping_pong", e.schedule.ping_pong},
                 {"pack_group", e.schedule.pack_group},
                 {"cluster", e.schedule.cluster},
                 {"order", order_name(e.schedule)},
                 {"from", source_text(e.decision)},
                 {"reason", e.decision.reason},
                 {"skipped_records", e.decision.skipped}}},
               {"bucket", bucket_of(e.shape).name},
               {"other_variants", other_variants(e)},
               {"shared_memory", e.resources.shared_memory},
               {"accumulator_registers", e.resources.accumulator_registers},
               {"blocks_per_sm", e.resources.blocks_per_sm},
               {"warps_per_sm", warps_per_sm(e)},
               {"shape",
                {{"batch", e.shape.batch},
                 {"heads", e.shape.heads},
                 {"seqlen_q", e.shape.seqlen_q},
                 {"seqlen_kv", e.shape.seqlen_kv}}},
               {"tiles", e.plan.tiles},
               {"section_heads", e.plan.section_heads},
               {"tiles_per_head",
                {{"visited", e.model.tiles.visited},
                 {"masked", e.model.tiles.masked},
                 {"skipped", e.model.tiles.skipped},
                 {"skipped_share", e.map.skipped_share()}}},
               {"flops", {{"needed", e.model.work.needed}, {"done", e.model.work.done}}},
               {"bytes",
                {{"tiled_least", e.model.traffic.tiled_least()},
                 {"tiled_most", e.model.traffic.tiled_most()},
                 {"materialising", e.model.traffic.materialising()}}}};
  if (e.backward) {
    json.erase("bytes");
    json["tiles"] = e.backward->key_blocks;
    json["flops"] = {{"needed", backward_work(e)}};
  }
  json["workspace_bytes"] = workspace_size(e.spec, e.schedule, all_sequences(e.spec, e.shape));
  if (e.measured) {
    json["measured"] = {{"compiler", e.measured->compiler},
                        {"registers", e.measured->registers},
                        {"spill_bytes", e.measured->spill_bytes},
                        {"notes", e.measured->notes}};
  } else {
    json["not_measured"] = e.not_measured;
  }
  return json;
}

}  // namespace

Command add_explain(CLI::App& root) {
  CLI::App* app =
      root.add_subcommand("explain", "Say which schedule a spec gets and why, and what a launch costs");
  auto options = std::make_shared<Options>();
  app->add_option("SPEC", options->file, "Spec file")->required();
  app->add_option("--target", options->target, "Target (default: this machine's GPU, else sm_80)");
  options->shape.add_to(*app, 4096);
  options->expressions.add_to(*app, " (default: may be anything)",
                              " (default: may hold anything; given, the tiles are those of the first head)");
  app->add_option("--svg", options->svg, "Also write the map of tiles as a picture");
  app->add_flag("--no-compile", options->no_compile, "Calculated figures alone");
  app->add_flag("--json", options->json, "Print JSON");
  return {app, [options] {
            Explanation explanation = explain(*options);
            if (!options->svg.empty())
              write_picture(options->svg,
                            drawn_as_svg(explanation.map, title_of(explanation.spec, options->file)));
            if (options->json) {
              print_json(as_json(*options, explanation));
            } else {
              print_text(*options, explanation);
            }
            return exit_ok;
          }};
}

}  // namespace tilewright::cli
