// tilewright tune --dry-run: what would be tuned, without a GPU.
#include <fmt/format.h>

#include "cli/choices.h"
#include "cli/tune.h"
#include "codegen/timing_shape.h"

namespace tilewright::cli {
namespace {

Json axes_json(Pass pass, const Target& target) {
  Json list = Json::array();
  for (Family family : {Family::sm90, Family::sm80}) {
    if (family == Family::sm90 && !target.wgmma) continue;
    for (const ScheduleAxis& axis : schedule_axes(pass, family))
      list.push_back({{"family", name_of(family)},
                      {"name", axis.name},
                      {"meaning", axis.meaning},
                      {"values", axis.values}});
  }
  return list;
}

void print_space(const ScheduleSpace& space) {
  int refused = 0;
  for (const auto& [reason, points] : space.refused) refused += points.count;
  print_field("space",
              fmt::format("{} points, {} refused, {} legal", space.points, refused, space.legal.size()));
  Table table({"  refused", "because (# stands for a number)"});
  for (const auto& [reason, points] : space.refused) table.add({fmt::format("  {}", points.count), reason});
  table.print();
}

void print_ranked(const std::vector<RankedSchedule>& ranked, const std::vector<Schedule>& candidates) {
  Table table({"  predicted", "bound by", "waves", "candidate", "schedule"});
  for (const RankedSchedule& one : ranked) {
    const bool usual = one.schedule == candidates.front();
    const bool timed = std::find(candidates.begin(), candidates.end(), one.schedule) != candidates.end();
    table.add({fmt::format("  {:.1f} us", one.cost.microseconds), std::string(one.cost.bound),
               fmt::format("{:.1f}", one.cost.waves),
               usual   ? "default"
               : timed ? "yes"
                       : "",
               describe(one.schedule)});
  }
  table.print();
}

}  // namespace

void print_dry_run(const TuneJob& job, const Target& target, const TuneSettings& settings, bool json,
                   Json& list) {
  require_tunable(job.spec, target);
  const ScheduleSpace space = schedule_space(job.spec, target);
  const GpuFigures gpu = typical_gpu(target);
  Json buckets = Json::array();
  if (!json) {
    print_field("spec", job.title);
    print_field("target", fmt::format("{}, {}", target.name, target.generation));
    print_space(space);
  }
  std::vector<const ShapeBucket*> wanted = settings.options.buckets;
  if (wanted.empty())
    for (const ShapeBucket& bucket : shape_buckets()) wanted.push_back(&bucket);
  for (const ShapeBucket* bucket : wanted) {
    const LaunchShape shape = timing_shape(job.spec, *bucket);
    const auto ranked = rank_schedules(job.spec, space.legal, target, gpu, shape);
    const auto candidates = bucket_candidates(job.spec, target, gpu, *bucket, space, settings.options);
    if (!json) {
      fmt::print("\nBucket {}, timed with {}; {} candidates:\n", bucket->name,
                 shape_sentence(job.spec, shape), candidates.size());
      print_ranked(ranked, candidates);
    }
    Json rows = Json::array();
    for (const RankedSchedule& one : ranked)
      rows.push_back(
          {{"schedule", describe(one.schedule)},
           {"predicted", one.cost.microseconds},
           {"bound", one.cost.bound},
           {"candidate", std::find(candidates.begin(), candidates.end(), one.schedule) != candidates.end()},
           {"default", one.schedule == candidates.front()}});
    buckets.push_back({{"bucket", bucket->name}, {"ranked", rows}});
  }
  if (!json) fmt::print("\n");
  Json refused = Json::array();
  for (const auto& [reason, points] : space.refused)
    refused.push_back({{"count", points.count}, {"reason", reason}, {"example", points.example}});
  list.push_back({{"spec", job.title},
                  {"target", target.name},
                  {"axes", axes_json(job.spec.pass, target)},
                  {"points", space.points},
                  {"legal", space.legal.size()},
                  {"refused", refused},
                  {"buckets", buckets}});
}

}  // namespace tilewright::cli
