#include "codegen/dead_branches.h"

#include <gtest/gtest.h>

namespace tilewright {
namespace {

const std::map<std::string, bool> constants = {{"on", true}, {"off", false}};

TEST(DeadBranches, GoWithTheirStatement) {
  EXPECT_EQ(without_dead_branches("  a();\n  if (off) b(c[1], {2, 3});\n  d();\n", constants),
            "  a();\n  d();\n");
  EXPECT_EQ(without_dead_branches("  if (!on)\n    b();\n  d();\n", constants), "  d();\n");
  EXPECT_EQ(without_dead_branches("  if (x && off) {\n    b();\n  }\n  d();\n", constants), "  d();\n");
}

TEST(DeadBranches, LeaveEverythingElse) {
  for (const char* text : {"  if (on) b();\n", "  if (x) b();\n", "  if (x || off) b();\n",
                           "  if (off) b();\n  else c();\n", "  if (off)\n    for (;;) b();\n",
                           "  if (offer) b();\n", "  const bool c = off;\n", "  if (f(off)) b();\n"})
    EXPECT_EQ(without_dead_branches(text, constants), text);
}

}  // namespace
}  // namespace tilewright
