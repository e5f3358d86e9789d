// Fuzz target: any bytes either give a SpecError or a valid spec whose canonical form parses back to an equal
// one.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

#include "codegen/error.h"
#include "codegen/spec.h"

namespace {

void require(bool holds, const char* property, const std::string& form) {
  if (holds) return;
  std::cerr << "broken property: " << property << "\ncanonical form:\n" << form;
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  tilewright::AttentionSpec spec;
  try {
    spec = tilewright::parse_spec(text, "fuzz.yaml");
  } catch (const tilewright::SpecError& error) {
    bool placed = error.line() >= 1 && error.column() >= 1;
    require(placed, "an error has a place", error.what());
    return 0;
  }
  std::string form = tilewright::canonical_form(spec);
  require(tilewright::validate(spec).empty(), "a parsed spec is valid", form);
  tilewright::AttentionSpec again = tilewright::parse_spec(form, "canonical.yaml");
  spec.name.clear();  // not part of the identity
  require(again == spec, "the canonical form parses back to an equal spec", form);
  require(tilewright::canonical_form(again) == form, "the canonical form is stable", form);
  return 0;
}
