#include "codegen/spec_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "codegen/backward_order.h"
#include "codegen/nearest.h"
#include "codegen/spec_expressions.h"
#include "codegen/spec_yaml.h"

namespace tilewright {
namespace {

constexpr size_t max_name_size = 128;

/// The valid values on both sides of an invalid one.
std::string nearest_values(const IntegerRule& rule, int64_t value) {
  if (value <= rule.low) return fmt::format("{}", rule.low);
  if (value >= rule.high) return fmt::format("{}", rule.high);
  int64_t below = value - value % rule.multiple;
  return fmt::format("{} and {}", std::max(below, rule.low), std::min(below + rule.multiple, rule.high));
}

class Problems {
 public:
  void add(std::optional<SpecProblem> problem) {
    if (problem) found.push_back(std::move(*problem));
  }
  template <typename Rule, typename Value>
  void check_if_given(const Rule& rule, const std::optional<Value>& value) {
    if (value) add(check(rule, *value));
  }
  std::vector<SpecProblem> found;
};

void check_dtype(Problems& problems, std::string_view field, DataType type) {
  if (std::find(spec_data_types.begin(), spec_data_types.end(), type) != spec_data_types.end()) return;
  problems.add(SpecProblem{std::string(field), fmt::format("{}: {} is not valid", field, name_of(type)),
                           "one of fp16, bf16, e4m3, e5m2", ""});
}

void check_order(Problems& problems, const std::optional<std::string>& order) {
  if (!order || order_number(*order) >= 0) return;
  std::vector<std::string_view> names;
  for (const BackwardOrder& known : backward_orders()) names.push_back(known.name);
  problems.add(SpecProblem{"blocks.order", fmt::format("blocks.order: {} is not valid", *order),
                           fmt::format("one of {}", fmt::join(names, ", ")),
                           std::string(nearest(*order, names))});
}

void check_window_side(Problems& problems, int64_t side) {
  if (side != Mask::unlimited) problems.add(check(window_rule, side));
}

void check_mask(Problems& problems, const Mask& mask) {
  if (mask.blocks) {
    problems.add(check(mask_block_m_rule, mask.blocks->m));
    problems.add(check(mask_block_n_rule, mask.blocks->n));
  }
  bool no_side = mask.left == Mask::unlimited && mask.right == Mask::unlimited;
  if (mask.kind != Mask::Kind::window) {
    if (!no_side) {
      problems.add(SpecProblem{"mask", "mask: left and right are set although the mask is no window",
                               "window sides with a window alone", ""});
    }
    return;
  }
  check_window_side(problems, mask.left);
  check_window_side(problems, mask.right);
  bool bounded = mask.left != Mask::unlimited && mask.right != Mask::unlimited;
  if (bounded && problems.found.empty() && mask.left + mask.right < 0) {
    problems.add(SpecProblem{
        "mask.window",
        fmt::format("mask.window: [{}, {}] is empty: no query would ever see a key", mask.left, mask.right),
        "left + right of at least 0", ""});
  }
}

void check_page_size(Problems& problems, const AttentionSpec& spec) {
  if (spec.layout == Layout::paged) {
    if (spec.page_size != 0) {
      problems.add(check(page_size_rule, spec.page_size));
    } else {
      problems.add(SpecProblem{"layout", "layout: paged needs a page_size",
                               "`page_size:` with " + description(page_size_rule), ""});
    }
  } else if (spec.page_size != 0) {
    problems.add(SpecProblem{"page_size",
                             fmt::format("page_size: has no meaning with layout {}", name_of(spec.layout)),
                             "`layout: paged`, or no page_size", ""});
  }
}

void check_bias_gradient(Problems& problems, const AttentionSpec& spec) {
  if (!spec.bias_gradient || (spec.bias && spec.pass == Pass::backward)) return;
  problems.add(SpecProblem{"bias_gradient",
                           spec.bias
                               ? fmt::format("bias_gradient: `pass: {}` has no gradients", name_of(spec.pass))
                               : "bias_gradient: there is no bias",
                           "it with `bias: true` and `pass: backward` alone", ""});
}

void check_name(Problems& problems, const std::string& name) {
  bool printable =
      std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; });
  if (printable && name.size() <= max_name_size) return;
  problems.add(SpecProblem{"name", fmt::format("name: {} is not valid", quoted_for_message(name)),
                           fmt::format("at most {} printable bytes", max_name_size), ""});
}

}  // namespace

std::string SpecProblem::message() const {
  std::string text = fault + "; expected " + expected;
  if (!nearest.empty()) text += "; nearest: " + nearest;
  return text;
}

std::string description(const IntegerRule& rule) {
  std::string what = rule.multiple == 1 ? "an integer" : fmt::format("a multiple of {}", rule.multiple);
  return fmt::format("{} from {} to {}", what, rule.low, rule.high);
}

std::string description(const NumberRule& rule) {
  return fmt::format("{}a number from {} to {}", rule.zero ? "0 or " : "", shortest_decimal(rule.low),
                     shortest_decimal(rule.high));
}

std::optional<SpecProblem> check(const IntegerRule& rule, int64_t value) {
  bool valid = value >= rule.low && value <= rule.high && value % rule.multiple == 0;
  if (valid) return std::nullopt;
  return SpecProblem{std::string(rule.field), fmt::format("{}: {} is not valid", rule.field, value),
                     description(rule), nearest_values(rule, value)};
}

std::optional<SpecProblem> check(const NumberRule& rule, double value) {
  bool valid = (value >= rule.low && value <= rule.high) || (rule.zero && value == 0);  // NaN is not
  if (valid) return std::nullopt;
  std::string near;
  if (value < rule.low) near = rule.zero && value < 0 ? "0" : shortest_decimal(rule.low);
  if (value > rule.high) near = shortest_decimal(rule.high);
  return SpecProblem{std::string(rule.field),
                     fmt::format("{}: {} is not valid", rule.field, shortest_decimal(value)),
                     description(rule), near};
}

std::vector<SpecProblem> find_problems(const AttentionSpec& spec) {
  Problems problems;
  check_mask(problems, spec.mask);
  problems.add(find_expression_problem(spec));
  check_name(problems, spec.name);
  if (spec.head_dim.qk == spec.head_dim.v) {
    problems.add(check(head_dim_rule, spec.head_dim.qk));
  } else {
    problems.add(check(head_dim_qk_rule, spec.head_dim.qk));
    problems.add(check(head_dim_v_rule, spec.head_dim.v));
  }
  check_dtype(problems, "dtype.q", spec.dtype.q);
  check_dtype(problems, "dtype.kv", spec.dtype.kv);
  check_dtype(problems, "dtype.out", spec.dtype.out);
  problems.add(check(gqa_ratio_rule, spec.gqa_ratio));
  check_page_size(problems, spec);
  check_bias_gradient(problems, spec);
  problems.check_if_given(block_m_rule, spec.blocks.m);
  problems.check_if_given(block_n_rule, spec.blocks.n);
  problems.check_if_given(block_stages_rule, spec.blocks.stages);
  problems.check_if_given(block_warps_rule, spec.blocks.warps);
  check_order(problems, spec.blocks.order);
  problems.check_if_given(softmax_scale_rule, spec.softmax_scale);
  if (spec.softmax_scale && spec.softmax_scale_at_launch) {
    problems.add(
        SpecProblem{"softmax_scale", "softmax_scale: both a number and `launch`", "one of the two", ""});
  }
  problems.add(check(softcap_rule, spec.softcap));
  return std::move(problems.found);
}

std::string shortest_decimal(double value) {
  char text[40];
  auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(text, end);
}

}  // namespace tilewright
