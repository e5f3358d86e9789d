#include "codegen/spec.h"

#include <cmath>

#include "codegen/spec_rules.h"

namespace tilewright {

int size_of(DataType type) {
  switch (type) {
    case DataType::fp16:
    case DataType::bf16:
      return 2;
    case DataType::e4m3:
    case DataType::e5m2:
    case DataType::boolean:
      return 1;
    case DataType::fp32:
    case DataType::int32:
      return 4;
  }
  return 0;
}

std::string_view name_of(DataType type) {
  switch (type) {
    case DataType::fp16:
      return "fp16";
    case DataType::bf16:
      return "bf16";
    case DataType::e4m3:
      return "e4m3";
    case DataType::e5m2:
      return "e5m2";
    case DataType::fp32:
      return "fp32";
    case DataType::int32:
      return "int32";
    case DataType::boolean:
      return "bool";
  }
  return "";
}

std::string_view name_of(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return "forward";
    case Pass::backward:
      return "backward";
    case Pass::decode:
      return "decode";
  }
  return "";
}

std::string_view name_of(Layout layout) {
  switch (layout) {
    case Layout::bshd:
      return "bshd";
    case Layout::bhsd:
      return "bhsd";
    case Layout::packed:
      return "packed";
    case Layout::paged:
      return "paged";
  }
  return "";
}

std::string_view name_of(Family family) {
  return family == Family::sm80 ? "sm80" : "sm90";
}

std::string_view name_of(Rope rope) {
  switch (rope) {
    case Rope::none:
      return "none";
    case Rope::interleaved:
      return "interleaved";
    case Rope::half:
      return "half";
  }
  return "";
}

double AttentionSpec::scale() const {
  return softmax_scale ? *softmax_scale : 1 / std::sqrt(head_dim.qk);
}

std::vector<std::string> validate(const AttentionSpec& spec) {
  std::vector<std::string> messages;
  for (const SpecProblem& problem : find_problems(spec)) messages.push_back(problem.message());
  return messages;
}

}  // namespace tilewright
