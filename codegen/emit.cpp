#include "codegen/emit.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <map>
#include <unordered_map>

#include "codegen/dead_branches.h"
#include "codegen/emit_backward.h"
#include "codegen/error.h"
#include "codegen/families.h"
#include "codegen/kernel_expressions.h"
#include "codegen/look_up_tables.h"
#include "codegen/template_items.h"
#include "codegen/templates.h"
#include "codegen/warpgroup_products.h"

namespace tilewright {
namespace {

std::string_view template_text(std::string_view file) {
  for (int i = 0; i < embedded_template_count; ++i)
    if (embedded_templates[i].file == file) return embedded_templates[i].text;
  throw Error(ErrorKind::internal, "no template " + std::string(file));
}

struct TemplateFile {
  std::string title;
  std::vector<TemplateItem> items;
};

// Parsed once a process: the text does not change.
const TemplateFile& parsed_template(std::string_view file, Backend backend) {
  using Library = std::map<std::string_view, TemplateFile>;
  const auto parse_all = [](Backend for_backend) {
    Library library;
    for (int i = 0; i < embedded_template_count; ++i) {
      const auto& [name, text] = embedded_templates[i];
      library[name] = {template_title(text), parse_template(text, for_backend)};
    }
    return library;
  };
  static const Library device = parse_all(Backend::device);
  static const Library simulator = parse_all(Backend::simulator);
  return (backend == Backend::device ? device : simulator).at(file);
}

std::string number(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(value)).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text + "f";
}

// The constants that make the templates this spec's and this schedule's.
std::string configuration(const AttentionSpec& spec, const KernelExpressions& expressions,
                          const Schedule& schedule, const Target& target) {
  const Mask& mask = expressions.window;
  const bool causal = mask.kind == Mask::Kind::causal || mask.kind == Mask::Kind::causal_top_left;
  const bool window = mask.kind == Mask::Kind::window;
  const bool limited_left = window && mask.left != Mask::unlimited;
  const bool limited_right = causal || (window && mask.right != Mask::unlimited);
  Constants constants;
  constants.add_int("head_dim_qk", spec.head_dim.qk);
  constants.add_int("head_dim_v", spec.head_dim.v);
  constants.add_int("gqa_ratio", spec.gqa_ratio);
  constants.add_bool("aligned_bottom_right", mask.kind != Mask::Kind::causal_top_left);
  constants.add_bool("limited_left", limited_left);
  constants.add_bool("limited_right", limited_right);
  constants.add("long long", "window_left", std::to_string(limited_left ? mask.left : 0));
  constants.add("long long", "window_right", std::to_string(window && limited_right ? mask.right : 0));
  const bool listed = spec.mask.blocks.has_value(), scanned = expressions.walk == KeyWalkKind::scan;
  constants.add_bool("walk_is_dense", !listed && !scanned);
  constants.add_bool("with_block_list", listed);
  constants.add_int("list_block_m", listed ? spec.mask.blocks->m : 0);
  constants.add_int("list_block_n", listed ? spec.mask.blocks->n : 0);
  constants.add_bool("masked_by_limits", expressions.has_limits);
  constants.add_bool("masked_by_function", expressions.mask && !expressions.has_limits);
  constants.add_bool("last_rows_first", expressions.last_rows_first);
  constants.add_bool("with_softcap", expressions.softcap != 0);
  constants.add_bool("with_changed_scores", expressions.softcap != 0 || expressions.score);
  constants.add_bool("scores_may_vanish", expressions.score.has_value());
  constants.add("float", "softcap", number(expressions.softcap));
  constants.add_bool("with_lse", spec.lse);
  constants.add_bool("with_sinks", spec.sinks);
  constants.add_bool("with_dropout", spec.dropout);
  constants.add_bool("packed_layout", spec.layout == Layout::packed);
  if (spec.pass == Pass::backward) {
    add_backward_constants(constants, spec, expressions, schedule, target);
  } else if (schedule.family == Family::sm90) {
    constants.add_int("consumers", schedule.consumers());
    constants.add_int("producer_registers", sm90::producer_registers(schedule.consumers()));
    constants.add_int("consumer_registers", sm90::consumer_registers(schedule.consumers()));
    constants.add_bool("ping_pong", schedule.ping_pong);
    constants.add_int("cluster", schedule.cluster);
    constants.add_bool("clustered", schedule.cluster > 1);
    constants.add_bool("passes_over", (limited_left || limited_right || expressions.has_limits) && !listed &&
                                          !scanned && schedule.pack_group == 1 &&
                                          schedule.block_m - 64 >= schedule.block_n);
    constants.add_int("query_slots", sm90::query_slots(spec, schedule, target));
    constants.add_int("pack_group", schedule.pack_group);
    constants.add_bool("grouped", schedule.pack_group > 1);
    constants.add_bool("producer_is_warp",
                       spec.layout == Layout::packed || listed || expressions.walks_by_warp);
    constants.add_bool("lazy_rescale", spec.head_dim.v > 128);
    constants.add_bool("element_is_bf16", spec.dtype.q == DataType::bf16);
  }
  constants.add_int("block_m", schedule.positions());
  constants.add_int("block_n", schedule.block_n);
  constants.add_int("warps", schedule.warps);
  constants.add_int("threads", schedule.threads());
  constants.add_int("stages", schedule.stages);
  constants.add_bool("query_in_registers", schedule.query_in_registers);
  constants.add_int("blocks_per_sm", resources(spec, schedule, target).blocks_per_sm);
  return constants.text;
}

std::string header(const AttentionSpec& spec, const Schedule& schedule, const Target& target) {
  std::string text = "// Attention " + std::string(name_of(spec.pass)) + ", family " +
                     std::string(name_of(schedule.family)) + ", for " + std::string(target.name) +
                     ". Generated by Tilewright.\n// Schedule: " + describe(schedule) + ".\n// Spec:\n";
  const std::string canonical = canonical_form(spec);
  for (size_t at = 0; at < canonical.size();) {
    const size_t end = std::min(canonical.find('\n', at), canonical.size());
    text += "//   " + canonical.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return text;
}

// The kernel itself: what it takes depends on the spec.
std::string entry_point(Family family, bool expressions) {
  const std::string parameters = family == Family::sm90 ? "HopperForwardParameters" : "ForwardParameters";
  const std::string head = "extern \"C\" __global__ void __launch_bounds__(threads, " +
                           std::string(family == Family::sm90 ? "1" : "blocks_per_sm") + ")\n    " +
                           "attention_forward(const __grid_constant__ " + parameters + " p";
  if (expressions)
    return head +
           ",\n                      const __grid_constant__ ExpressionArguments e) {\n  forward(p, e);\n}\n";
  return head + ") {\n  forward(p, ExpressionArguments{});\n}\n";
}

// The backward pass's kernels that take expressions: the main one and that before it.
std::string backward_entry_points(Family family, bool expressions) {
  const std::string given = expressions ? ",\n    const __grid_constant__ ExpressionArguments e" : "";
  const std::string rest = given + ") {\n  ",
                    last = expressions ? "(p, e);\n}\n" : "(p, ExpressionArguments{});\n}\n";
  const bool hopper = family == Family::sm90;
  return "extern \"C\" __global__ void __launch_bounds__(prepare_threads)\n    "
         "attention_backward_prepare(const __grid_constant__ BackwardParameters p" +
         rest + "prepare" + last + "\nextern \"C\" __global__ void __launch_bounds__(threads, " +
         (hopper ? "1" : "blocks_per_sm") + ")\n    attention_backward(const __grid_constant__ " +
         (hopper ? "Hopper" : "") + "BackwardParameters p" + rest + "backward" + last;
}

// What the simulator calls: generated code keeps no other contact with the host. With expressions it gets two
// structures.
std::string simulator_entry_points(const Source& source, const std::string& parameters, bool expressions) {
  std::string text = "extern \"C\" void " + source.kernel_name +
                     "_bind(const SimulatorInterface* interface) { simulator = interface; }\n";
  const auto add_thunk = [&](const std::string& kernel, const std::string& type, bool takes_both) {
    text += "\nextern \"C\" void " + kernel + "_thunk(const void* parameters) {\n";
    if (takes_both)
      text += "  const void* const* both = (const void* const*)parameters;\n  " + kernel + "(*(const " +
              type + "*)both[0], *(const ExpressionArguments*)both[1]);\n}\n";
    else
      text += "  " + kernel + "(*(const " + type + "*)parameters);\n}\n";
  };
  if (source.before)
    add_thunk(source.before->name, source.after ? "BackwardParameters" : "ForwardParameters", expressions);
  add_thunk(source.kernel_name, parameters, expressions);
  if (source.after) add_thunk(source.after->name, "BackwardParameters", false);
  return text;
}

struct Section {
  std::string_view title;
  const std::vector<TemplateItem>* items;
};

// What the constants of a configuration decide.
std::map<std::string, bool> decided(const std::vector<TemplateItem>& constants) {
  std::map<std::string, bool> values;
  for (const TemplateItem& item : constants)
    if (item.text.starts_with("constexpr bool "))
      values[item.name] = item.text.find(" = true;") != std::string::npos;
  return values;
}

// Prints the items that the kernels reach by name, in the order of the sections, without what `constants`
// rule out.
std::string reachable(const std::vector<Section>& sections, const std::vector<std::string>& kernels,
                      const std::map<std::string, bool>& constants) {
  std::unordered_multimap<std::string_view, const TemplateItem*> by_name;
  for (const Section& section : sections)
    for (const TemplateItem& item : *section.items) by_name.emplace(item.name, &item);
  std::unordered_map<const TemplateItem*, std::string> used;
  std::vector<const TemplateItem*> open;
  const auto reach = [&](std::string_view name) {
    for (auto [at, end] = by_name.equal_range(name); at != end; ++at) {
      const auto [entry, is_new] = used.try_emplace(at->second);
      if (!is_new) continue;
      entry->second = without_dead_branches(at->second->text, constants);
      open.push_back(at->second);
    }
  };
  for (const std::string& kernel : kernels) reach(kernel);
  while (!open.empty()) {
    const TemplateItem* item = open.back();
    open.pop_back();
    const std::string& text = used[item];
    const bool whole = text.size() == item->text.size();
    for (const std::string& name : whole ? item->identifiers : identifiers_in(text)) reach(name);
  }
  std::string text;
  for (const Section& section : sections) {
    bool first = true, after_short = false;
    for (const TemplateItem& item : *section.items) {
      const auto found = used.find(&item);
      if (found == used.end()) continue;
      if (first) text += "\n// --- " + std::string(section.title) + "\n";
      const bool is_short = std::count(found->second.begin(), found->second.end(), '\n') <= 24;
      if (!first && !(is_short && after_short)) text += "\n";
      text += found->second;
      first = false;
      after_short = is_short;
    }
  }
  return text;
}

}  // namespace

std::vector<std::string> kernel_names(const Source& source) {
  std::vector<std::string> names;
  if (source.before) names.push_back(source.before->name);
  names.push_back(source.kernel_name);
  if (source.after) names.push_back(source.after->name);
  return names;
}

Source emit(const AttentionSpec& spec, const Schedule& schedule, const Target& target, Backend backend) {
  const bool backward = spec.pass == Pass::backward, hopper = schedule.family == Family::sm90;
  Source source;
  source.kernel_name = backward ? "attention_backward" : "attention_forward";
  source.file_name = source.kernel_name + ".cu";
  source.threads = schedule.threads();
  source.shared_memory = resources(spec, schedule, target).shared_memory;
  if (backward) add_backward_kernels(source, schedule);

  const KernelExpressions expressions = kernel_expressions(spec);
  const bool with_tables = !backward && !expressions.tables.empty();
  if (with_tables) source.before = EntryPoint{table_kernel_name, table_threads, 0};
  const std::vector<TemplateItem> constants =
      parse_template(configuration(spec, expressions, schedule, target), backend);
  std::vector<Section> sections;
  const bool packed = spec.layout == Layout::packed;
  const auto add_file = [&](std::string_view file) {
    if (file.empty()) return;
    const TemplateFile& parsed = parsed_template(file, backend);
    sections.push_back({parsed.title, &parsed.items});
  };
  std::vector<TemplateItem> own;
  const auto add_expressions = [&] {
    if (expressions.any()) {
      add_file("expressions.cuh");
      add_file("expression_limits.cuh");
      if (!expressions.tables.empty()) add_file("expression_tables.cuh");
      own = parse_template(expression_declarations(spec, expressions), backend);
      sections.push_back({"This kernel's expressions", &own});
      if (with_tables) add_file("fill_tables.cuh");
    } else {
      add_file("no_expressions.cuh");
    }
  };
  const auto add_forward_files = [&] {
    for (const char* file : {"expression_parameters.cuh", "expression_values.cuh", "expression_ranges.cuh",
                             "expression_key_ranges.cuh", "visibility.cuh", "softcap.cuh"})
      add_file(file);
    add_expressions();
    add_file(expressions.walk == KeyWalkKind::window ? "visible_window.cuh" : "visible_rule.cuh");
    add_file(spec.mask.blocks                        ? "walk_list.cuh"
             : expressions.walk == KeyWalkKind::scan ? "walk_scan.cuh"
                                                     : "walk_range.cuh");
    for (const char* file : {"quad.cuh", "dropout_numbers.cuh", "dropout.cuh"}) add_file(file);
    if (schedule.family == Family::sm90) {
      for (const char* file :
           {spec.sinks ? "sinks.cuh" : "", "sm90/ring.cuh", "sm90/layout.cuh", packed ? "packed.cuh" : "",
            packed                    ? "sm90/place_packed.cuh"
            : schedule.pack_group > 1 ? "sm90/place_grouped.cuh"
                                      : "sm90/place.cuh",
            packed ? "sm90/last_values.cuh" : "sm90/tiles_by_number.cuh",
            schedule.cluster > 1 ? "sm90/together.cuh" : "", "sm90/tiles.cuh", "sm90/producer.cuh",
            "sm90/expressions.cuh", "sm90/softmax.cuh", "sm90/dropout.cuh", "sm90/output.cuh",
            "sm90/consumer.cuh", "sm90/forward.cuh"})
        add_file(file);
    } else {
      for (const char* file :
           {spec.sinks ? "sinks.cuh" : "", "sm80/tile.cuh", packed ? "packed.cuh" : "",
            packed ? "sm80/place_packed.cuh" : "sm80/place.cuh", "sm80/scores.cuh", "sm80/expressions.cuh",
            "sm80/softmax.cuh", "sm80/dropout.cuh", "sm80/output.cuh", "sm80/forward.cuh"})
        add_file(file);
    }
  };
  add_file("common.cuh");
  add_file("forward_parameters.cuh");
  if (backward) add_file("backward_parameters.cuh");
  sections.push_back({"This kernel's spec and schedule", &constants});
  add_file("primitives/primitives.cuh");
  add_file(spec.dtype.q == DataType::bf16 ? "primitives/element_bf16.cuh" : "primitives/element_fp16.cuh");
  std::vector<TemplateItem> products;
  std::deque<GeneratedPart> generated;
  if (backward) {
    for (std::string_view file : backward_files(spec, schedule.family, expressions)) {
      if (file == "generated/expressions") {
        add_expressions();
        continue;
      }
      if (!file.starts_with("generated/")) {
        add_file(file);
        continue;
      }
      const GeneratedPart& part = generated.emplace_back(generated_part(file, spec, schedule, backend));
      sections.push_back({part.title, &part.items});
    }
  } else {
    if (hopper) {
      add_file("sm90/parameters.cuh");
      add_file("primitives/sm90.cuh");
      if (schedule.cluster > 1) add_file("primitives/cluster.cuh");
      products = warpgroup_products(spec, schedule, backend);
      sections.push_back({"The matrix products in this kernel's shape", &products});
      if (packed) add_file("primitives/sm90_bulk.cuh");
    }
    add_forward_files();
  }
  const std::vector<TemplateItem> entry =
      parse_template(backward ? backward_entry_points(schedule.family, expressions.any())
                              : (source.before ? table_kernel(expressions.tables) + "\n" : "") +
                                    entry_point(schedule.family, expressions.any()),
                     backend);
  sections.push_back({source.before ? "The kernels" : "The kernel", &entry});

  source.text = header(spec, schedule, target) + "\n";
  if (backend == Backend::simulator)
    source.text += std::string(template_text("primitives/simulator_interface.cuh")) + "\n";
  source.text += template_text(backend == Backend::device ? "primitives/device_prelude.cuh"
                                                          : "primitives/simulator_prelude.cuh");
  source.text += reachable(sections, kernel_names(source), decided(constants));
  if (backend == Backend::simulator) {
    const std::string pass = backward ? "Backward" : "Forward";
    source.text += "\n" + simulator_entry_points(source, (hopper ? "Hopper" : "") + pass + "Parameters",
                                                 expressions.any());
  }
  return source;
}

}  // namespace tilewright
