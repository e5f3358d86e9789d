// The default schedule of a GPU that nobody measured: by the model.
#pragma once

#include <optional>
#include <string>

#include "codegen/schedule.h"

namespace tilewright {

/// Whether the default rules were measured on this very generation; elsewhere the model chooses.
bool rule_is_measured(const Target& target);

struct ModelChoice {
  Schedule schedule;
  std::string reason;  // one sentence
};
/// The fastest by the model, for the target's typical GPU and the shape that stands for the bucket, of
/// schedules which compilers do not spill. What the default rule chose stays unless the model is sure to beat
/// it, and other buckets have the long one's unless they gain as much. Nothing where the rule was measured,
/// for a spec with `blocks` of its own, and where no schedule of the rule's own family fits. Pure, and the
/// same on every machine, so that bundles hold what a runtime asks for. Throws as choose_schedule.
std::optional<ModelChoice> model_choice(const AttentionSpec& spec, const Target& target,
                                        const ShapeBucket& bucket);

/// What runs as long as there is no record: the model's choice, else the default rule's.
Schedule untuned_schedule(const AttentionSpec& spec, const Target& target, const ShapeBucket& bucket);

}  // namespace tilewright
