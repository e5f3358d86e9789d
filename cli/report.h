// The pieces of the page that `tilewright report` writes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/output.h"
#include "codegen/cost_model.h"
#include "runtime/tuning_records.h"

namespace tilewright::cli {

/// & < > " as HTML has them.
std::string escaped(std::string_view text);

/// Draws into one <svg> of a size in pixels; what does not fit is the caller's mistake.
class Svg {
 public:
  Svg(double width, double height, std::string_view label);
  void line(double x1, double y1, double x2, double y2, std::string_view css);
  void box(double x, double y, double width, double height, std::string_view css, std::string_view title = "",
           double opacity = 1);
  void dot(double x, double y, double radius, std::string_view css, std::string_view title = "");
  /// `anchor`: start, middle or end.
  void text(double x, double y, std::string_view text, std::string_view anchor = "start",
            std::string_view css = "");
  void path(const std::vector<std::pair<double, double>>& points, std::string_view css);
  std::string finish() const { return body_ + "</svg>\n"; }

 private:
  std::string body_;
};

/// A point of the roofline: one launch.
struct RooflinePoint {
  std::string label;
  double intensity = 0;  // needed operations over least bytes
  double tflops = 0;
  bool best = false;  // else the default
};
std::string roofline_chart(const GpuFigures& gpu, const std::vector<RooflinePoint>& points);

/// Gains of the best over the default; `margin` as a whisker.
struct GainBar {
  std::string label;
  double gain = 0, margin = 0;
};
std::string gain_chart(const std::vector<GainBar>& bars);

/// Of a line of the log: block rows by keys, each cell the fastest of its schedules. A chart for each family.
std::string heat_maps(const Json& line);
/// Of a line of the log: the samples of the fastest candidates.
std::string spread_chart(const Json& line);

}  // namespace tilewright::cli
