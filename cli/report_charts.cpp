// Charts of the tuning report, as SVG.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "cli/report.h"

namespace tilewright::cli {
namespace {

constexpr double page = 860;  // width of a chart

std::string shortened(const std::string& text, size_t most) {
  return text.size() <= most ? text : text.substr(0, most - 1) + "…";
}

/// Steps of 1, 2 or 5 times a power of ten, about `count` of them.
double nice_step(double span, int count) {
  const double rough = span / count, power = std::pow(10, std::floor(std::log10(rough)));
  for (double factor : {1.0, 2.0, 5.0})
    if (rough <= factor * power) return factor * power;
  return 10 * power;
}

/// A place on a logarithmic axis.
struct LogAxis {
  double low, high, from, to;
  double operator()(double value) const {
    const double share = std::log(value / low) / std::log(high / low);
    return from + std::clamp(share, 0.0, 1.0) * (to - from);
  }
};

double real(const Json& json, const char* key) {
  return json.contains(key) && json[key].is_number() ? json[key].get<double>() : 0;
}

std::vector<const Json*> timed_candidates(const Json& line) {
  std::vector<const Json*> list;
  for (const Json& candidate : line["candidates"])
    if (real(candidate, "median") > 0) list.push_back(&candidate);
  std::stable_sort(list.begin(), list.end(),
                   [](const Json* a, const Json* b) { return real(*a, "slower") < real(*b, "slower"); });
  return list;
}

std::string heat_map(const std::string& family, const std::map<std::pair<int, int>, const Json*>& cells) {
  std::set<int> rows, columns;
  double fastest = 1e300;
  for (const auto& [place, candidate] : cells) {
    rows.insert(place.first);
    columns.insert(place.second);
    fastest = std::min(fastest, 1 + real(*candidate, "slower"));
  }
  const double cell_width = std::min(64.0, (page - 80) / static_cast<double>(columns.size())),
               cell_height = 30;
  Svg svg(80 + cell_width * static_cast<double>(columns.size()),
          44 + cell_height * static_cast<double>(rows.size()), "Time over block sizes, family " + family);
  svg.text(0, 14, family + ": m down, n across", "start", "strong");
  double y = 22;
  for (int m : rows) {
    svg.text(62, y + cell_height / 2 + 4, std::to_string(m), "end");
    double x = 70;
    for (int n : columns) {
      if (const auto found = cells.find({m, n}); found != cells.end()) {
        const double slower = (1 + real(*found->second, "slower")) / fastest - 1;
        // Full colour for the fastest, none at half as slow again.
        const double strength = std::clamp(1 - slower / 0.5, 0.06, 1.0);
        svg.box(x + 1, y + 1, cell_width - 2, cell_height - 2, "heat",
                fmt::format("{}: {:.1f} us", (*found->second)["schedule"].get<std::string>(),
                            real(*found->second, "median")),
                strength);
        svg.text(x + cell_width / 2, y + cell_height / 2 + 4,
                 slower < 0.0005 ? "best" : fmt::format("{:+.0f}%", 100 * slower), "middle",
                 strength > 0.55 ? "on-heat" : "");
      }
      x += cell_width;
    }
    y += cell_height;
  }
  double x = 70;
  for (int n : columns) {
    svg.text(x + cell_width / 2, y + 16, std::to_string(n), "middle");
    x += cell_width;
  }
  return svg.finish();
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

Svg::Svg(double width, double height, std::string_view label)
    : body_(fmt::format(
          "<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" "
          "aria-label=\"{2}\">\n",
          width, height, escaped(label))) {}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view css) {
  body_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1,
                       y1, x2, y2, css);
}

void Svg::box(double x, double y, double width, double height, std::string_view css, std::string_view title,
              double opacity) {
  body_ += fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"{}\" "
      "fill-opacity=\"{:.2f}\">",
      x, y, std::max(width, 0.5), height, css, opacity);
  if (!title.empty()) body_ += "<title>" + escaped(title) + "</title>";
  body_ += "</rect>\n";
}

void Svg::dot(double x, double y, double radius, std::string_view css, std::string_view title) {
  body_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" class=\"{}\">", x, y, radius, css);
  if (!title.empty()) body_ += "<title>" + escaped(title) + "</title>";
  body_ += "</circle>\n";
}

void Svg::text(double x, double y, std::string_view text, std::string_view anchor, std::string_view css) {
  body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n", x, y,
                       anchor, css, escaped(text));
}

void Svg::path(const std::vector<std::pair<double, double>>& points, std::string_view css) {
  body_ += fmt::format("<polyline class=\"{}\" points=\"", css);
  for (const auto& [x, y] : points) body_ += fmt::format("{:.1f},{:.1f} ", x, y);
  body_ += "\"/>\n";
}

std::string roofline_chart(const GpuFigures& gpu, const std::vector<RooflinePoint>& points) {
  const double height = 380, left = 60, right = page - 20, top = 20, bottom = height - 44;
  const double peak =
      std::max(gpu.wgmma_flops, gpu.mma_flops) * gpu.multiprocessors * gpu.gigahertz * 1e-3;  // TFLOP/s
  const double bandwidth = gpu.memory_bytes_per_second * 1e-12;                               // TB/s
  double high = 4 * peak / bandwidth, low = peak / bandwidth / 16;
  for (const RooflinePoint& point : points) {
    high = std::max(high, 1.5 * point.intensity);
    low = std::min(low, point.intensity / 1.5);
  }
  const LogAxis x{low, high, left, right}, y{peak / 64, peak * 1.5, bottom, top};
  Svg svg(page, height, "Roofline: speed over arithmetic intensity");
  for (double value = std::pow(10, std::floor(std::log10(peak / 64))); value < peak * 1.5; value *= 10)
    for (double factor : {1.0, 2.0, 5.0}) {
      if (value * factor < peak / 64 || value * factor > peak * 1.5) continue;
      svg.line(left, y(value * factor), right, y(value * factor), "grid");
      svg.text(left - 6, y(value * factor) + 4, fmt::format("{:g}", value * factor), "end");
    }
  for (double value = std::pow(10, std::floor(std::log10(low))); value <= high; value *= 10) {
    if (value < low) continue;
    svg.line(x(value), top, x(value), bottom, "grid");
    svg.text(x(value), bottom + 16, fmt::format("{:g}", value), "middle");
  }
  const double knee = peak / bandwidth;
  svg.path({{x(low), y(low * bandwidth)}, {x(knee), y(peak)}, {x(high), y(peak)}}, "roof");
  svg.text(right, y(peak) - 6, fmt::format("{:.0f} TFLOP/s, tensor cores by the data sheet's clock", peak),
           "end");
  svg.text((left + right) / 2, height - 8, "operations needed per byte that must move", "middle");
  svg.text(left, top - 6, "TFLOP/s", "start");
  for (const RooflinePoint& point : points)
    svg.dot(
        x(point.intensity), y(point.tflops), point.best ? 5 : 4, point.best ? "best" : "usual",
        fmt::format("{}, {}: {:.0f} TFLOP/s", point.label, point.best ? "best" : "default", point.tflops));
  return svg.finish();
}

std::string gain_chart(const std::vector<GainBar>& bars) {
  const double left = 250, right = page - 60, row = 20, top = 26;
  double most = 0.02;
  for (const GainBar& bar : bars) most = std::max(most, std::max(bar.gain, bar.margin));
  const auto x = [&](double gain) { return left + gain / most * (right - left); };
  Svg svg(page, top + row * static_cast<double>(bars.size()) + 10,
          "Gain of the best schedule over the default");
  const double step = nice_step(100 * most, 6) / 100;
  for (double gain = 0; gain <= most * 1.0001; gain += step) {
    svg.line(x(gain), top - 6, x(gain), top + row * static_cast<double>(bars.size()), "grid");
    svg.text(x(gain), 14, fmt::format("{:g} %", std::round(1000 * gain) / 10), "middle");
  }
  double y = top;
  for (const GainBar& bar : bars) {
    svg.text(left - 8, y + 13, shortened(bar.label, 36), "end");
    if (bar.gain > 0)
      svg.box(left, y + 3, x(bar.gain) - left, row - 8, "best",
              fmt::format("{}: {:.1f} %", bar.label, 100 * bar.gain));
    svg.line(x(bar.margin), y + 2, x(bar.margin), y + row - 4, "margin");
    svg.text(x(bar.gain > 0 ? bar.gain : bar.margin) + 6, y + 13,
             bar.gain > 0 ? fmt::format("{:.1f} %", 100 * bar.gain) : "default");
    y += row;
  }
  return svg.finish();
}

std::string heat_maps(const Json& line) {
  std::map<std::string, std::map<std::pair<int, int>, const Json*>> families;
  for (const Json* candidate : timed_candidates(line)) {
    const Json& blocks = (*candidate)["blocks"];
    // The fastest comes first and stays.
    families[blocks["family"].get<std::string>()].emplace(
        std::pair{blocks["m"].get<int>(), blocks["n"].get<int>()}, candidate);
  }
  std::string charts;
  for (const auto& [family, cells] : families) charts += heat_map(family, cells);
  return charts;
}

std::string spread_chart(const Json& line) {
  std::vector<const Json*> list = timed_candidates(line);
  if (list.size() > 12) list.resize(12);
  double low = 1e300, high = 0;
  for (const Json* candidate : list) {
    std::vector<double> samples = (*candidate)["samples"].get<std::vector<double>>();
    if (samples.empty()) continue;
    std::sort(samples.begin(), samples.end());
    low = std::min(low, samples.front());
    high = std::max(high, samples[samples.size() * 9 / 10]);
  }
  if (!(high > 0)) return "";
  if (high <= low) high = low * 1.01;
  const double left = 330, right = page - 20, row = 22, top = 26;
  const auto x = [&](double value) {
    return left + std::clamp((value - low) / (high - low), 0.0, 1.0) * (right - left);
  };
  Svg svg(page, top + row * static_cast<double>(list.size()) + 10, "Samples of the fastest candidates");
  const double step = nice_step(high - low, 6);
  for (double value = std::ceil(low / step) * step; value <= high; value += step) {
    svg.line(x(value), top - 6, x(value), top + row * static_cast<double>(list.size()), "grid");
    svg.text(std::min(x(value), page - 40), 14, fmt::format("{:g} us", value), "middle");
  }
  double y = top + row / 2;
  for (const Json* candidate : list) {
    svg.text(left - 10, y + 4, shortened((*candidate)["schedule"].get<std::string>(), 52), "end");
    for (const Json& sample : (*candidate)["samples"]) svg.dot(x(sample.get<double>()), y, 2.5, "sample");
    svg.line(x(real(*candidate, "median")), y - 8, x(real(*candidate, "median")), y + 8, "median");
    y += row;
  }
  return svg.finish();
}

}  // namespace tilewright::cli
