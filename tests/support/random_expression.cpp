#include "tests/support/random_expression.h"

#include <algorithm>
#include <cmath>

namespace tilewright {
namespace {

using O = Operation;

Expression variable(ExpressionVariable which) {
  return Expression::variable(which);
}

}  // namespace

Declarations random_declarations() {
  Declarations declarations;
  declarations.scalars = {
      {"width", ScalarType::integer}, {"step", ScalarType::integer}, {"cap", ScalarType::number}};
  for (const auto& [name, type] : {std::pair{"document", "int32[kv]"},
                                   {"slope", "float32[head]"},
                                   {"keep", "bool[batch, kv]"},
                                   {"bias", "fp16[1, head, q, kv]"},
                                   {"table", "bf16[9]"}})
    declarations.tensors[name] = parse_tensor_type(type);
  return declarations;
}

Expression RandomExpressions::boolean(int levels) {
  if (levels <= 1) return Expression::boolean(below(2) == 0);
  const int64_t choice = below(12);
  if (choice < 6) {
    const auto comparison = static_cast<Operation>(static_cast<int64_t>(O::less) + below(6));
    const bool floats = with_floats && below(4) == 0;
    return floats ? Expression::make(comparison, {number(levels - 1), number(levels - 1)})
                  : Expression::make(comparison, {integer(levels - 1), integer(levels - 1)});
  }
  if (choice < 8) return Expression::make(O::logical_and, {boolean(levels - 1), boolean(levels - 1)});
  if (choice < 10) return Expression::make(O::logical_or, {boolean(levels - 1), boolean(levels - 1)});
  if (choice == 10 && with_tensors)
    return Expression::look_up("keep", ElementType::boolean,
                               {variable(ExpressionVariable::batch), integer(levels - 1)});
  if (below(2)) return Expression::make(O::logical_not, {boolean(levels - 1)});
  return Expression::make(O::choose, {boolean(levels - 1), boolean(levels - 1), boolean(levels - 1)});
}

Expression RandomExpressions::integer(int levels) {
  if (levels <= 1 || below(4) == 0) {
    const int64_t choice = below(12);
    if (choice < 3) return variable(ExpressionVariable::q);
    if (choice < 6) return variable(ExpressionVariable::kv);
    if (choice == 6)
      return variable(static_cast<ExpressionVariable>(between(
          static_cast<int64_t>(ExpressionVariable::head), static_cast<int64_t>(ExpressionVariable::batch))));
    if (choice == 7) return variable(below(2) ? ExpressionVariable::seqlen_q : ExpressionVariable::seqlen_kv);
    if (choice == 8) return Expression::scalar(below(2) ? "width" : "step", ScalarType::integer);
    if (choice == 9 && below(8) == 0) return Expression::integer(INT64_MAX - below(3));
    return Expression::integer(below(choice == 10 ? 100 : 10));
  }
  const int64_t choice = below(16);
  if (choice < 4) return Expression::make(O::subtract, {integer(levels - 1), integer(levels - 1)});
  if (choice < 6) return Expression::make(O::add, {integer(levels - 1), integer(levels - 1)});
  if (choice == 6) return Expression::make(O::multiply, {integer(levels - 1), integer(levels - 1)});
  if (choice < 9) {
    // The parser refuses constants of 0 as divisors; a product with a variable is none.
    const Expression divisor =
        below(2) ? Expression::integer(between(1, 9)) : Expression::scalar("step", ScalarType::integer);
    return Expression::make(choice == 7 ? O::divide : O::modulo, {integer(levels - 1), divisor});
  }
  if (choice == 9) return Expression::make(O::abs, {integer(levels - 1)});
  if (choice == 10)
    return Expression::make(below(2) ? O::min : O::max, {integer(levels - 1), integer(levels - 1)});
  if (choice == 11) return Expression::make(O::negate, {integer(levels - 1)});
  if (choice == 12)
    return Expression::make(O::choose, {boolean(levels - 1), integer(levels - 1), integer(levels - 1)});
  if (choice == 13 && with_floats) return Expression::make(O::floor, {number(levels - 1)});
  if (!with_tensors) return integer(levels - 1);
  return Expression::look_up("document", ElementType::int32, {integer(levels - 1)});
}

Expression RandomExpressions::number(int levels) {
  if (levels <= 1 || below(4) == 0) {
    const int64_t choice = below(6);
    if (choice < 2 && with_score) return variable(ExpressionVariable::score);
    if (choice == 2) return Expression::scalar("cap", ScalarType::number);
    if (choice == 3) return Expression::number(below(2) ? INFINITY : real(0, 1e6));
    return Expression::number(static_cast<double>(below(64)) / 8);
  }
  const int64_t choice = below(18);
  if (choice < 9) {
    static constexpr Operation binary[] = {O::add, O::subtract, O::multiply, O::divide,  O::min,
                                           O::max, O::pow,      O::add,      O::multiply};
    return Expression::make(binary[choice], {number(levels - 1), number(levels - 1)});
  }
  if (choice < 14) {
    static constexpr Operation unary[] = {O::negate, O::abs, O::exp, O::log, O::tanh};
    return Expression::make(unary[choice - 9], {number(levels - 1)});
  }
  if (choice == 14)
    return Expression::make(O::choose, {boolean(levels - 1), number(levels - 1), number(levels - 1)});
  if (choice == 15 || !with_tensors) {
    const Expression value = integer(levels - 1);
    return value.operation() == O::integer_literal
               ? Expression::number(static_cast<double>(value.integer_value()))
               : Expression::make(O::to_number, {value});
  }
  if (choice == 16)
    return Expression::look_up("slope", ElementType::float32, {variable(ExpressionVariable::head)});
  return Expression::look_up("table", ElementType::bf16, {integer(levels - 1)});
}

Expression RandomExpressions::score(int levels) {
  with_score = true;
  Expression result = number(levels);
  with_score = false;
  return result;
}

RandomData::RandomData(RandomExpressions& random, int64_t queries, int64_t keys)
    : seqlen_q(queries), seqlen_kv(keys) {
  scalars["width"] = Value::of(random.between(-3, 40));
  scalars["step"] = Value::of(random.below(6) == 0 ? int64_t{0} : random.between(-4, 12));
  scalars["cap"] = Value::of(static_cast<double>(static_cast<float>(random.real(-4, 50))));
  for (const auto& [name, type] : declarations.tensors) {
    int64_t count = 1;
    for (const Dimension& dimension : type.dimensions) count *= extent(dimension);
    std::vector<Value>& values = tensors[name];
    int64_t run = 0;  // values come in runs, as documents do
    for (int64_t i = 0; i < count; ++i) {
      if (random.below(6) == 0) ++run;
      if (type.element == ElementType::boolean)
        values.push_back(Value::of(run % 2 == 0));
      else if (type.element == ElementType::int32)
        values.push_back(Value::of(run));
      else if (random.below(40) == 0)
        values.push_back(Value::of(random.below(2) ? double{INFINITY} : std::nan("")));
      else
        values.push_back(Value::of(static_cast<double>(random.between(-64, 64)) / 16));
    }
  }
}

int64_t RandomData::extent(const Dimension& dimension) const {
  switch (dimension.extent) {
    case Dimension::Extent::q:
      return seqlen_q;
    case Dimension::Extent::kv:
      return seqlen_kv;
    case Dimension::Extent::head:
      return heads;
    case Dimension::Extent::kv_head:
      return kv_heads;
    case Dimension::Extent::batch:
      return batch;
    case Dimension::Extent::fixed:
      break;
  }
  return dimension.size;
}

Value RandomData::look_up(const std::string& name, const std::vector<int64_t>& indices) const {
  const TensorType& type = declarations.tensors.at(name);
  int64_t at = 0;
  for (size_t i = 0; i < indices.size(); ++i) {
    const int64_t size = extent(type.dimensions[i]);
    at = at * size + clamped_index(type.dimensions[i], size, indices[i], seqlen_q, seqlen_kv);
  }
  return tensors.at(name)[static_cast<size_t>(at)];
}

ValueRange RandomData::look_up_range(const std::string& name,
                                     const std::vector<ranges::IntRange>& indices) const {
  const TensorType& type = declarations.tensors.at(name);
  std::vector<int64_t> low, high;
  for (size_t i = 0; i < indices.size(); ++i) {
    const int64_t size = extent(type.dimensions[i]);
    const int64_t shift = type.dimensions[i].extent == Dimension::Extent::q ? seqlen_kv - seqlen_q : 0;
    low.push_back(clamped_index(type.dimensions[i], size, indices[i].low, seqlen_q, seqlen_kv) + shift);
    high.push_back(clamped_index(type.dimensions[i], size, indices[i].high, seqlen_q, seqlen_kv) + shift);
  }
  std::vector<int64_t> at = low;
  bool any = false;
  ValueRange hull;
  const auto include = [&](const Value& value) {
    if (value.type == ValueType::boolean) {
      const ranges::Truth truth = ranges::exactly_bool(value.integer != 0);
      hull = ValueRange::of(
          any ? ranges::Truth{hull.truth.may_hold || truth.may_hold, hull.truth.may_fail || truth.may_fail}
              : truth);
    } else if (value.type == ValueType::integer) {
      const ranges::IntRange range = ranges::exactly_int(value.integer);
      hull = ValueRange::of(any ? ranges::choose_int_range({true, true}, hull.integer, range) : range);
    } else {
      const ranges::FloatRange range = ranges::exactly_float(static_cast<float>(value.number));
      hull = ValueRange::of(any ? ranges::choose_float_range({true, true}, hull.number, range) : range);
    }
    any = true;
  };
  while (true) {
    include(look_up(name, at));
    size_t i = at.size();
    while (i > 0 && at[i - 1] == high[i - 1]) --i, at[i] = low[i];
    if (i == 0) return hull;
    ++at[i - 1];
  }
}

Environment RandomData::at(int64_t q, int64_t kv, int64_t head, int64_t in_batch, double score) const {
  Environment environment{.q = q,
                          .kv = kv,
                          .head = head,
                          .kv_head = head * kv_heads / heads,
                          .batch = in_batch,
                          .seqlen_q = seqlen_q,
                          .seqlen_kv = seqlen_kv,
                          .score = score,
                          .scalars = &scalars,
                          .look_up = {}};
  environment.look_up = [this](const std::string& name, const std::vector<int64_t>& indices) {
    return look_up(name, indices);
  };
  return environment;
}

RangeEnvironment RandomData::tile(int64_t q0, int64_t q1, int64_t kv0, int64_t kv1, int64_t head,
                                  int64_t in_batch) const {
  RangeEnvironment environment;
  environment.q = {q0, q1};
  environment.kv = {kv0, kv1};
  environment.head = ranges::exactly_int(head);
  environment.kv_head = ranges::exactly_int(head * kv_heads / heads);
  environment.batch = ranges::exactly_int(in_batch);
  environment.seqlen_q = ranges::exactly_int(seqlen_q);
  environment.seqlen_kv = ranges::exactly_int(seqlen_kv);
  for (const auto& [name, value] : scalars)
    environment.scalars[name] = value.type == ValueType::integer
                                    ? ValueRange::of(ranges::exactly_int(value.integer))
                                    : ValueRange::of(ranges::exactly_float(static_cast<float>(value.number)));
  environment.look_up = [this](const Expression& look_up, const std::vector<ranges::IntRange>& indices) {
    return look_up_range(look_up.name(), indices);
  };
  return environment;
}

}  // namespace tilewright
