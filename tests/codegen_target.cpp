// The table of targets and what is compiled for which device.
#include "codegen/target.h"

#include <gtest/gtest.h>

#include "codegen/error.h"

namespace tilewright {
namespace {

TEST(Target, EveryDeviceGetsAnExactNamePtxOrAReason) {
  struct Row {
    int major, minor;
    const char* name;  // null: refused
    bool as_ptx;
  };
  for (const Row& row :
       {Row{7, 5, nullptr, false}, Row{8, 0, "sm_80", false}, Row{8, 6, "sm_86", false},
        Row{8, 7, "sm_87", false}, Row{8, 8, "sm_86", true}, Row{8, 9, "sm_89", false},
        Row{9, 0, "sm_90a", false}, Row{10, 0, "sm_100a", false}, Row{10, 3, "sm_103a", false},
        Row{11, 0, "sm_86", true}, Row{12, 0, "sm_120a", false}, Row{12, 1, "sm_121a", false},
        Row{13, 0, "sm_86", true}}) {
    const TargetChoice choice = target_for_device(row.major, row.minor);
    SCOPED_TRACE(std::to_string(row.major) + "." + std::to_string(row.minor));
    ASSERT_EQ(choice.target == nullptr, row.name == nullptr);
    if (row.name) {
      EXPECT_EQ(choice.target->name, row.name);
    }
    EXPECT_EQ(choice.as_ptx, row.as_ptx);
    EXPECT_EQ(choice.reason.empty(), row.name && !row.as_ptx);
  }
}

TEST(Target, UnknownNameNamesTheNearest) {
  try {
    target_by_name("sm_90");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("nearest: sm_90a"), std::string::npos) << error.what();
  }
}

TEST(Target, NamesAreUniqueAndOldestFirst) {
  const Target* last = nullptr;
  for (const Target& target : targets()) {
    EXPECT_EQ(&target_by_name(target.name), &target);
    if (last) {
      EXPECT_LT(last->major * 10 + last->minor, target.major * 10 + target.minor);
    }
    last = &target;
  }
}

}  // namespace
}  // namespace tilewright
