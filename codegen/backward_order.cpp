#include "codegen/backward_order.h"

#include <algorithm>
#include <utility>

#include "codegen/error.h"

namespace tilewright {
namespace {

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> list;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) list.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return list;
}

bool has_prefix(const BackwardOrder& order, char prefix) {
  const std::vector<std::string> steps = words(order.steps);
  return std::any_of(steps.begin(), steps.end(), [&](const std::string& step) { return step[0] == prefix; });
}

// In what blocks a step is left out: the first one has no block before it, the last one none behind it.
std::string absent_when(const std::string& step) {
  return step[0] == '-' ? "first" : step[0] == '+' ? "last" : "";
}

// How the generated code names what belongs to the block that a step speaks of.
struct Names {
  std::string stage, parity;  // of Q and dO
  std::string buffer, use;    // of dS, and the parity of its use
  std::string row, masked;
};

Names names_of(const std::string& step) {
  if (step[0] == '+')
    return {"block.place.stage", "block.place.parity", "next_buffer", "next_use", "next_row", "next_masked"};
  if (step[0] == '-') return {"", "", "(buffer ^ 1)", "last_use", "", ""};
  return {"place.stage", "place.parity", "buffer", "use", "row", "masked"};
}

std::string bare(std::string step) {
  if (step[0] == '+' || step[0] == '-') step.erase(0, 1);
  return step;
}

// What a spec adds to the arithmetic.
struct Extras {
  bool dropout, bias_gradient;
};

// Statements in the order of some steps, with the waits that they need.
class Statements {
 public:
  Statements(const BackwardOrder& order, Extras extras) : order_(order), extras_(extras) {}

  void add(const std::string& step) {
    const std::string absent = absent_when(step);
    if (step[0] == '+' && !std::exchange(advanced_, true)) advance();
    const std::string statements = of(step);
    if (absent.empty()) {
      text_ += indented(statements, "  ");
    } else {
      text_ += "  if (!" + absent + ") {\n" + indented(statements, "    ") + "  }\n";
    }
  }

  /// What is awaited here, all that is still at work, goes by without a word.
  std::string finish() {
    if (!std::exchange(advanced_, true)) text_ += "  advance(block, rows);\n";
    for (size_t i = finished_[false][false]; i < issued_.size(); ++i) {
      if (bare(issued_[i]) != "S")
        throw Error(ErrorKind::internal,
                    "order " + std::string(order_.name) + " does not wait for " + issued_[i]);
      text_ += "  if (!last) {\n" + indented(wait_for(issued_[i]) + "settle(scores);\n", "    ") + "  }\n";
    }
    return text_;
  }
  const std::string& text() const { return text_; }

 private:
  static std::string indented(const std::string& statements, const char* indent) {
    std::string text;
    for (size_t at = 0; at < statements.size();) {
      const size_t end = statements.find('\n', at) + 1;
      text += indent + statements.substr(at, end - at);
      at = end;
    }
    return text;
  }

  void advance() {
    text_ += "  advance(block, rows);\n";
    if (!order_.splits_columns) return;
    text_ +=
        "  const int next_buffer = block.count % 2, next_use = block.count / 2 % 2;\n"
        "  const int next_row = block.m * block_m + me.first_row;\n"
        "  const bool next_masked = block.m < rows.full_begin || block.m >= rows.full_end;\n";
  }

  static bool is_absent(const std::string& product, bool first, bool last) {
    const std::string absent = absent_when(product);
    return (absent == "first" && first) || (absent == "last" && last);
  }

  // Groups end in the order of issue: whoever waits for one has waited for those before it. Each kind of
  // block has its own count, and a wait that an earlier one covers is left out: behind that, ptxas no longer
  // knows what is at work (C7514).
  std::string wait_for(const std::string& product) {
    const auto at = std::find(issued_.begin(), issued_.end(), product);
    if (at == issued_.end())
      throw Error(ErrorKind::internal,
                  "order " + std::string(order_.name) + " waits for " + product + " before it is issued");
    int counts[2][2];  // [first][last]; -1: no wait
    for (const bool first : {false, true})
      for (const bool last : {false, true}) {
        int& count = counts[first][last];
        size_t& finished = finished_[first][last];
        const size_t end = static_cast<size_t>(at - issued_.begin()) + 1;
        count = -1;
        if (is_absent(product, first, last) || finished >= end) continue;
        finished = end;
        count = static_cast<int>(std::count_if(
            at + 1, issued_.end(), [&](const std::string& later) { return !is_absent(later, first, last); }));
      }
    const auto text = [&](int of_first, int of_others, const char* kind) -> std::string {
      if (of_first < 0 && of_others < 0) return "";
      const std::string wait = "warpgroup_wait<", end = ">();\n";
      if (of_first < 0) return std::string("if (!") + kind + ") " + wait + std::to_string(of_others) + end;
      if (of_others < 0) return std::string("if (") + kind + ") " + wait + std::to_string(of_first) + end;
      if (of_first == of_others) return wait + std::to_string(of_first) + end;
      return wait + kind + " ? " + std::to_string(of_first) + " : " + std::to_string(of_others) + end;
    };
    // Where the product is left out nobody gets here, whatever the count.
    const std::string absent = absent_when(product);
    if (absent == "first") return text(counts[0][1], counts[0][0], "last");
    if (absent == "last") return text(counts[1][0], counts[0][0], "first");
    if (counts[0][0] == counts[1][0] && counts[0][1] == counts[1][1])
      return text(counts[0][1], counts[0][0], "last");
    if (counts[0][0] == counts[0][1] && counts[1][0] == counts[1][1])
      return text(counts[1][0], counts[0][0], "first");
    // Both kinds differ: counts add up, since each leaves out products of its own.
    return "warpgroup_wait<" + std::to_string(counts[1][1]) +
           " + (first ? 0 : " + std::to_string(counts[0][1] - counts[1][1]) +
           ") + (last ? 0 : " + std::to_string(counts[1][0] - counts[1][1]) + ")>();\n";
  }

  std::string issue(const std::string& step, const std::string& statements) {
    issued_.push_back(step);
    return statements;
  }

  std::string of(const std::string& step) {
    const Names at = names_of(step);
    const std::string word = bare(step);
    if (word == "S")
      return issue(step, "barrier_wait(layout.query_full(" + at.stage + "), " + at.parity +
                             ");\nmultiply_scores(scores, me.keys, me.queries + " + at.stage +
                             " * (query_bytes / 16));\n");
    if (word == "dP")
      return issue(step, "barrier_wait(layout.gradient_full(" + at.stage + "), " + at.parity +
                             ");\nmultiply_dp(dp, me.values, me.gradients + " + at.stage +
                             " * (gradient_bytes / 16));\n");
    if (word == "take") return "take_turn(me);\n";
    if (word == "pass") return "pass_turn(me);\n";
    if (word == "P")
      return (order_.splits_columns || step[0] == '+' || !has_prefix(order_, '+') ? wait_scores(step) : "") +
             (extras_.dropout
                  ? "find_dropped(dropped, p.backward.forward.dropout, block.head, " + at.row + ", key);\n"
                  : "") +
             "find_probabilities(p, me, scores, probabilities, block.head, " + at.masked + ", " + at.row +
             ", key,\n                   me.lse + " + at.stage + " * row_terms_bytes);\n";
    if (word == "dS")
      return wait_for(std::string(step).replace(step.size() - 2, 2, "dP")) + "settle(dp);\n" +
             (extras_.dropout ? "drop_gradients(dp, dropped, p.backward.forward.dropout.factor);\n" : "") +
             (extras_.bias_gradient
                  ? "add_bias_gradients(p, me, scores, probabilities, dp, block.head, " + at.row +
                        ", key,\n                   me.lse + row_terms_after_lse + " + at.stage +
                        " * row_terms_bytes);\n"
                  : "") +
             "compute_ds(ds, scores, dp, me.lse + row_terms_after_lse + " + at.stage +
             " * row_terms_bytes);\n" + pack() + "barrier_wait(layout.ds_empty(" + at.buffer + "), " +
             at.use + " ^ 1);\n" +
             (order_.splits_columns
                  ? "store_columns(me.ds_store + " + at.buffer + " * ds_bytes, probabilities, ds);\n"
                  : "store_ds(me.ds_store + " + at.buffer + " * ds_bytes, ds);\n") +
             "release(layout.ds_full(" + at.buffer + "));\n";
    return order_.splits_columns ? by_columns(step, word, at) : by_keys(step, word, at);
  }

  std::string wait_scores(const std::string& step) {
    return wait_for(std::string(step).replace(step.size() - 1, 1, "S")) + "settle(scores);\n";
  }

  std::string pack() {
    if (std::exchange(packed_, true)) return "";
    return std::string("pack_transposed(probabilities, scores);\n") +
           (extras_.dropout ? "drop_packed(probabilities, dropped);\n" : "");
  }

  std::string by_keys(const std::string& step, const std::string& word, const Names& at) {
    if (word == "dV")
      return pack() + issue(step, "multiply_dv(dv, probabilities, me.gradients_transposed + " + at.stage +
                                      " * (gradient_bytes / 16));\n");
    if (word == "dK")
      return issue(step,
                   "multiply_dk(dk, ds, me.queries_transposed + " + at.stage + " * (query_bytes / 16));\n");
    if (word == "dQ")
      return issue(step, "barrier_wait(layout.ds_full(" + at.buffer + "), " + at.use +
                             ");\nmultiply_dq(dq, me.ds + " + at.buffer +
                             " * (ds_bytes / 16), me.keys_transposed);\n");
    if (word == "dV!")
      return wait_for("dV") + "settle(probabilities);\nrelease(layout.gradient_empty(" + at.stage + "));\n";
    if (word == "dK!")
      return wait_for("dK") + "settle(ds);\nrelease(layout.query_empty(" + at.stage + "));\n";
    if (word == "dQ!")
      return wait_for(step.substr(0, step.size() - 1)) + "settle(dq);\nrelease(layout.ds_empty(" + at.buffer +
             "));\nwrite_dq(me, dq);\n";
    throw Error(ErrorKind::internal, "order " + std::string(order_.name) + " has the unknown step " + step);
  }

  std::string by_columns(const std::string& step, const std::string& word, const Names& at) {
    const std::string join = "barrier_wait(layout.ds_full(" + at.buffer + "), " + at.use + ");\n";
    const std::string ds = " + " + at.buffer + " * (ds_bytes / 16), ";
    const std::string query = " + " + at.stage + " * (query_bytes / 16)";
    const std::string gradient = " + " + at.stage + " * (gradient_bytes / 16)";
    const auto product = [&](const std::string& statement) {
      return (std::exchange(joined_, true) ? "" : join) + issue(step, statement);
    };
    if (word == "dV")
      return product("multiply_dv(dv, me.probabilities" + ds + "me.gradients_transposed" + gradient +
                     ", me.gradients_middle" + gradient + ");\n");
    if (word == "dK")
      return product("multiply_dk(dk, me.ds" + ds + "me.queries_transposed" + query + ", me.queries_middle" +
                     query + ");\n");
    if (word == "dQ") return product("multiply_dq(dq, me.ds" + ds + "me.keys_transposed, me.keys_middle);\n");
    // The buffer is given back behind the last of the three.
    const auto left = [&] {
      return ++awaited_ == 3 ? "release(layout.ds_empty(" + at.buffer + "));\n" : std::string();
    };
    if (word == "dV!") return wait_for("dV") + "release(layout.gradient_empty(" + at.stage + "));\n" + left();
    if (word == "dK!") return wait_for("dK") + "release(layout.query_empty(" + at.stage + "));\n" + left();
    if (word == "dQ!") return wait_for("dQ") + "settle(dq);\n" + left() + "add_dq(p, me, head, row, dq);\n";
    throw Error(ErrorKind::internal, "order " + std::string(order_.name) + " has the unknown step " + step);
  }

  const BackwardOrder& order_;
  Extras extras_;
  std::string text_;
  std::vector<std::string> issued_;
  size_t finished_[2][2] = {};  // of them, by [first][last]
  bool packed_ = false, advanced_ = false, joined_ = false;
  int awaited_ = 0;
};

constexpr const char* block_parameters =
    "const HopperBackwardParameters& p, const BackwardLayout& layout, const BackwardConsumer& me,\n"
    "    const RowTiles& rows, RowBlock& block, int key";

constexpr const char* this_block =
    "  const RingPlace place = block.place;\n"
    "  const int buffer = block.count % 2, use = block.count / 2 % 2, row = block.m * block_m + "
    "me.first_row;\n"
    "  const bool masked = block.m < rows.full_begin || block.m >= rows.full_end;\n";

std::string pieces(bool dropout) {
  return std::string("  float dp[score_rows / 2];\n  u32 probabilities[score_rows / 4], ds[score_rows / 4]") +
         (dropout ? ", dropped[dropped_words];\n" : ";\n");
}

// What a tile's first block finds done: the steps that speak of the next block.
std::string begin_blocks(const BackwardOrder& order, Extras extras) {
  Statements statements(order, extras);
  for (const std::string& step : words(order.steps))
    if (step[0] == '+') statements.add(step.substr(1));
  std::string body = statements.text();
  const bool arithmetic = has_step(order, "+P");
  if (has_step(order, "+S") && !arithmetic) body += "  warpgroup_wait<0>();\n  settle(scores);\n";
  return std::string("/// Before a tile's first block: what a block does for the one behind it.\n") +
         "__device__ __forceinline__ void begin_blocks(\n    " + block_parameters +
         ", float (&scores)[score_rows / 2]) {\n" + (body.empty() ? "" : this_block) +
         (arithmetic ? pieces(extras.dropout) : "") + body + "}\n\n";
}

std::string differentiate_block(const BackwardOrder& order, Extras extras) {
  Statements statements(order, extras);
  for (const std::string& step : words(order.steps)) statements.add(step);
  return "/// A block of query rows, in the order \"" + std::string(order.steps) +
         "\".\ntemplate <bool first, bool last>\n__device__ __forceinline__ void differentiate_block(\n    " +
         block_parameters +
         ", float (&scores)[score_rows / 2],\n    float (&dq)[dq_columns / 2], float (&dk)[dk_columns / 2], "
         "float (&dv)[dv_columns / 2]) {\n" +
         this_block +
         (has_prefix(order, '-') ? "  const int last_use = (block.count + 1) / 2 % 2 ^ 1;\n" : "") +
         (order.splits_columns ? "  const int head = block.head;\n" : "") + pieces(extras.dropout) +
         statements.finish() + "}\n\n";
}

// The steps that speak of the block before it, for a tile's last block.
std::string end_blocks(const BackwardOrder& order) {
  std::string body;
  if (has_step(order, "-dQ"))
    body +=
        "  const int buffer = (block.count + 1) % 2, last_use = (block.count + 1) / 2 % 2 ^ 1;\n"
        "  barrier_wait(layout.ds_full(buffer), last_use);\n"
        "  multiply_dq(dq, me.ds + buffer * (ds_bytes / 16), me.keys_transposed);\n"
        "  warpgroup_wait<0>();\n  settle(dq);\n"
        "  release(layout.ds_empty(buffer));\n  write_dq(me, dq);\n";
  return "/// Behind a tile's last block: what a block does for the one before it.\n"
         "__device__ __forceinline__ void end_blocks(const BackwardLayout& layout, const BackwardConsumer& "
         "me,\n"
         "                                           const RowBlock& block, float (&dq)[dq_columns / 2]) "
         "{\n" +
         body + "}\n";
}

}  // namespace

// A product with its A operand in registers holds up the warp that issues it, so arithmetic belongs behind
// products whose operands both lie in shared memory, and dQ between dV and dK. Measured on an H200, TFLOP/s
// at 16k keys, full and causal:
//   head dim 64    late 571, 561   late_pass_early 574, 558   late_in_place 525, 496   plain 534, 506
//   head dim 128   late 622, 603   late_pass_early 549, 600   late_in_place 577, 589   plain 561, 541
//   head dim 256   columns 434, 419, with dV and dK exchanged 410, 392   columns_plain 390, 389
const std::vector<BackwardOrder>& backward_orders() {
  static const std::vector<BackwardOrder> orders = {
      {"late", false, "dP P dS take dV -dQ dV! dK +S pass dK! -dQ!"},
      {"late_in_place", false, "S dP P dS take dV -dQ dV! dK pass -dQ! dK!"},
      {"late_pass_early", false, "dP P dS take dV -dQ dV! dK pass +S dK! -dQ!"},
      {"plain", false, "S dP P dS dV dQ dV! dK dQ! dK!"},
      {"columns", true, "dQ dK dQ! +S +dP dV +P +dS dV! dK!"},
      {"columns_plain", true, "S dP P dS dQ dV dK dQ! dV! dK!"},
  };
  return orders;
}

int order_number(std::string_view name) {
  const std::vector<BackwardOrder>& orders = backward_orders();
  for (size_t i = 0; i < orders.size(); ++i)
    if (orders[i].name == name) return static_cast<int>(i);
  return -1;
}

bool has_step(const BackwardOrder& order, std::string_view word) {
  const std::vector<std::string> steps = words(order.steps);
  return std::find(steps.begin(), steps.end(), word) != steps.end();
}

bool first_block_differs(const BackwardOrder& order) {
  return has_prefix(order, '-');
}

bool last_block_differs(const BackwardOrder& order) {
  return has_prefix(order, '+');
}

std::string backward_loop(const BackwardOrder& order, bool dropout, bool bias_gradient) {
  const Extras extras{dropout, bias_gradient};
  return begin_blocks(order, extras) + differentiate_block(order, extras) + end_blocks(order);
}

}  // namespace tilewright
