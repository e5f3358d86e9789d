#include "runtime/environment.h"

#include <gtest/gtest.h>

#include "codegen/error.h"
#include "tests/support/runtime_support.h"

namespace tilewright {
namespace {

using test::ScopedEnvironment;

TEST(Environment, RegistryIsInTheOrderOfTheEnumeration) {
  int index = 0;
  for (const auto& variable : environment_variables()) {
    EXPECT_EQ(static_cast<int>(variable.variable), index++);
    EXPECT_TRUE(std::string_view(variable.name).starts_with("TILEWRIGHT_")) << variable.name;
    EXPECT_STREQ(name_of(variable.variable), variable.name);
  }
}

TEST(Environment, AnEmptyVariableIsUnset) {
  ScopedEnvironment empty("TILEWRIGHT_NVRTC", "");
  EXPECT_FALSE(environment(Variable::nvrtc));
  ScopedEnvironment set("TILEWRIGHT_NVRTC", "/x");
  EXPECT_EQ(environment(Variable::nvrtc), "/x");
}

TEST(Environment, Flags) {
  for (auto [value, expected] : {std::pair{"1", true}, {"yes", true}, {"0", false}, {"", false}}) {
    ScopedEnvironment set("TILEWRIGHT_CACHE_DEBUG", value);
    EXPECT_EQ(environment_flag(Variable::cache_debug), expected) << value;
  }
}

TEST(Environment, NumbersNameTheirVariableWhenTheyAreNone) {
  ScopedEnvironment good("TILEWRIGHT_LOCK_SECONDS", "2.5");
  EXPECT_EQ(environment_number(Variable::lock_seconds), 2.5);
  for (const char* bad : {"soon", "5s", "-1", "inf", "nan"}) {
    ScopedEnvironment set("TILEWRIGHT_LOCK_SECONDS", bad);
    std::string message = test::message_of<Error>([] { environment_number(Variable::lock_seconds); });
    EXPECT_NE(message.find("TILEWRIGHT_LOCK_SECONDS is '" + std::string(bad) + "'"), std::string::npos)
        << message;
  }
}

}  // namespace
}  // namespace tilewright
