// The launch that stands for a bucket of shapes when schedules are timed or estimated.
#pragma once

#include "codegen/launch_plan.h"
#include "codegen/spec.h"

namespace tilewright {

/// At least 16 heads; about 16384 tokens, or what the bucket lets through.
LaunchShape timing_shape(const AttentionSpec& spec, const ShapeBucket& bucket);

}  // namespace tilewright
