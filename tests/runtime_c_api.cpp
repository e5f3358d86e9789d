// The C interface, through the shared library as its users load it.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <tilewright/tilewright.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/runtime_support.h"

namespace {

struct Library {
  void* handle = dlopen(TILEWRIGHT_BINARY_DIR "/libtilewright.so", RTLD_NOW | RTLD_LOCAL);

  template <typename Function>
  Function* find(Function*, const char* name) const {
    auto* function = reinterpret_cast<Function*>(dlsym(handle, name));
    if (!function) std::fprintf(stderr, "libtilewright.so lacks %s\n", name), std::abort();
    return function;
  }
};

const Library& library() {
  static const Library instance;
  return instance;
}

#define TW(name) library().find(static_cast<decltype(&::name)>(nullptr), #name)

class CApi : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(library().handle, nullptr) << dlerror();
    tw_options options;
    TW(tw_options_init)(&options);
    options.device = TW_DEVICE_SIMULATOR;
    options.disk_cache = 0;
    ASSERT_EQ(TW(tw_runtime_create)(&options, &runtime_), TW_OK) << TW(tw_last_error)();
  }
  void TearDown() override { TW(tw_runtime_destroy)(runtime_); }

  tw_kernel* kernel(const char* spec) {
    tw_kernel* kernel = nullptr;
    EXPECT_EQ(TW(tw_kernel_create)(runtime_, spec, nullptr, &kernel), TW_OK) << TW(tw_last_error)();
    return kernel;
  }

  tw_runtime* runtime_ = nullptr;
};

TEST_F(CApi, InfoIsJson) {
  auto runtime = nlohmann::json::parse(TW(tw_runtime_info)(runtime_));
  EXPECT_EQ(runtime["simulator"], true);
  EXPECT_EQ(runtime["target"], "sm_80");
  EXPECT_EQ(runtime["version"], TW(tw_version)());
  tw_kernel* made = kernel("{head_dim: 32, mask: causal, lse: true}");
  auto info = nlohmann::json::parse(TW(tw_kernel_info)(made));
  EXPECT_EQ(info["from"], "compiled");
  EXPECT_EQ(info["head_dim_qk"], 32);
  EXPECT_EQ(info["lse"], true);
  EXPECT_EQ(info["dtype_out"], "bf16");
  EXPECT_EQ(info["layout"], "bshd");
  EXPECT_NE(info["spec"].get<std::string>().find("mask: causal"), std::string::npos);
  EXPECT_NE(std::string(TW(tw_kernel_source)(made)).find("attention_forward"), std::string::npos);
  TW(tw_kernel_destroy)(made);
}

TEST_F(CApi, LendsAWorkspace) {
  tw_kernel* made = kernel(
      "{head_dim: 8, dtype: fp16, mask: \"document[q] == document[kv]\", tensors: {document: 'int32[kv]'}}");
  size_t need = 0;
  ASSERT_EQ(TW(tw_workspace_size)(made, 1, 1, 2, 2, &need), TW_OK);
  EXPECT_EQ(need, 16u) << "a tile of queries, a tile of keys";
  alignas(16) uint16_t q[16] = {}, k[16] = {}, v[16], out[16] = {};
  std::fill(v, v + 8, 0x4200);       // 3
  std::fill(v + 8, v + 16, 0x4400);  // 4
  int32_t document[2] = {1, 2};
  alignas(16) unsigned char workspace[16];
  auto tensor = [](uint16_t* data) { return tw_tensor{data, TW_FP16, 4, {1, 2, 1, 8}, {16, 8, 8, 1}}; };
  const tw_tensor tensors[] = {tensor(q), tensor(k), tensor(v), tensor(out)};
  const tw_named_tensor named = {"document", {document, TW_INT32, 1, {2}, {1}}};
  tw_forward arguments = {.size = sizeof(tw_forward),
                          .q = &tensors[0],
                          .k = &tensors[1],
                          .v = &tensors[2],
                          .out = &tensors[3],
                          .tensors = &named,
                          .tensor_count = 1};
  EXPECT_EQ(TW(tw_launch_forward)(made, nullptr, &arguments), TW_ERROR_USAGE);
  EXPECT_STREQ(TW(tw_last_error)(), "workspace: it is missing, expected 16 bytes (Kernel::workspace_size)");
  arguments.workspace = workspace, arguments.workspace_bytes = sizeof workspace;
  for (int32_t unchanged : {0, 1}) {
    arguments.tensors_unchanged = unchanged;
    std::fill(out, out + 16, 0);
    ASSERT_EQ(TW(tw_launch_forward)(made, nullptr, &arguments), TW_OK) << TW(tw_last_error)();
    for (int i = 0; i < 16; ++i) EXPECT_EQ(out[i], v[i]);
  }
  TW(tw_kernel_destroy)(made);
}

TEST_F(CApi, Launches) {
  // One key: the output is its value, whatever the scores.
  tw_kernel* made = kernel("{head_dim: 32, dtype: fp16}");
  alignas(16) uint16_t q[32] = {}, k[32] = {}, v[32], out[32] = {};
  std::fill(v, v + 32, 0x4200);  // 3
  auto tensor = [](uint16_t* data) { return tw_tensor{data, TW_FP16, 4, {1, 1, 1, 32}, {32, 32, 32, 1}}; };
  tw_tensor tensors[] = {tensor(q), tensor(k), tensor(v), tensor(out)};
  auto launch = [&] {
    return TW(tw_launch)(made, nullptr, &tensors[0], &tensors[1], &tensors[2], &tensors[3], nullptr, nullptr);
  };
  ASSERT_EQ(launch(), TW_OK) << TW(tw_last_error)();
  for (uint16_t value : out) EXPECT_EQ(value, 0x4200);

  for (int32_t margin : {1, 3}) {
    const tw_forward arguments = {.size = sizeof(tw_forward),
                                  .q = &tensors[0],
                                  .k = &tensors[1],
                                  .v = &tensors[2],
                                  .out = &tensors[3],
                                  .programmatic_dependent_launch = 1,
                                  .sm_margin = margin};
    EXPECT_EQ(TW(tw_launch_forward)(made, nullptr, &arguments), margin == 1 ? TW_OK : TW_ERROR_USAGE);
  }
  EXPECT_STREQ(TW(tw_last_error)(), "sm_margin is 3, expected 0 to 2: the device has 3 multiprocessors");

  const double scale = 1;
  EXPECT_EQ(TW(tw_launch)(made, nullptr, &tensors[0], &tensors[1], &tensors[2], &tensors[3], nullptr, &scale),
            TW_ERROR_USAGE);
  EXPECT_EQ(TW(tw_launch)(made, nullptr, &tensors[0], nullptr, &tensors[2], &tensors[3], nullptr, nullptr),
            TW_ERROR_USAGE);
  EXPECT_STREQ(TW(tw_last_error)(), "k is null");
  tensors[2].dtype = 17;
  EXPECT_EQ(launch(), TW_ERROR_USAGE);
  EXPECT_STREQ(TW(tw_last_error)(), "v has dtype 17, expected 0 to 6");
  tensors[2].dtype = TW_FP16;
  tensors[3].rank = 5;
  EXPECT_EQ(launch(), TW_ERROR_USAGE);
  tensors[3].rank = 3;
  EXPECT_EQ(launch(), TW_ERROR_USAGE);
  EXPECT_NE(std::string(TW(tw_last_error)()).find("out has 3 dimensions"), std::string::npos);
  TW(tw_kernel_destroy)(made);
}

// Case K1.
TEST_F(CApi, FindsOnlyWhatWasMadeBefore) {
  tw_kernel* found = nullptr;
  EXPECT_EQ(TW(tw_kernel_find)(runtime_, "head_dim: 32", nullptr, &found), TW_ERROR_USAGE);
  EXPECT_EQ(found, nullptr);
  EXPECT_TRUE(std::string(TW(tw_last_error)()).starts_with("not prepared: ")) << TW(tw_last_error)();
  tw_kernel* made = kernel("head_dim: 32");
  EXPECT_EQ(TW(tw_kernel_find)(runtime_, "head_dim: 32\nname: x\n", nullptr, &found), TW_OK);
  EXPECT_EQ(nlohmann::json::parse(TW(tw_kernel_info)(found))["from"], "memory");
  TW(tw_kernel_destroy)(made);
  TW(tw_kernel_destroy)(found);
}

TEST_F(CApi, ErrorsHaveKindAndText) {
  tw_kernel* made = nullptr;
  EXPECT_EQ(TW(tw_kernel_create)(runtime_, "head_dim: 100", "my.yaml", &made), TW_ERROR_SPEC);
  EXPECT_EQ(made, nullptr);
  EXPECT_EQ(TW(tw_last_error_status)(), TW_ERROR_SPEC);
  EXPECT_TRUE(std::string(TW(tw_last_error)()).starts_with("my.yaml:1:11: ")) << TW(tw_last_error)();
  EXPECT_EQ(TW(tw_kernel_create)(nullptr, "head_dim: 64", nullptr, &made), TW_ERROR_USAGE);
  EXPECT_STREQ(TW(tw_last_error)(), "runtime is null");
  std::thread([] { EXPECT_STREQ(TW(tw_last_error)(), ""); }).join();  // each thread has its own

  tw_runtime* runtime = nullptr;
  tw_options options;
  TW(tw_options_init)(&options);
  options.size = 3;
  EXPECT_EQ(TW(tw_runtime_create)(&options, &runtime), TW_ERROR_USAGE);
  TW(tw_options_init)(&options);
  options.device = 9;
  EXPECT_EQ(TW(tw_runtime_create)(&options, &runtime), TW_ERROR_USAGE);
  EXPECT_STREQ(TW(tw_last_error)(), "tw_options.device is 9, expected 0 to 2");
  EXPECT_EQ(runtime, nullptr);
}

TEST_F(CApi, Supports) {
  int supported = -1;
  EXPECT_EQ(TW(tw_supports)("head_dim: 64", nullptr, "sm_90a", &supported), TW_OK);
  EXPECT_EQ(supported, 1);
  EXPECT_EQ(TW(tw_supports)("{head_dim: 64, pass: decode}", nullptr, "sm_90a", &supported), TW_OK);
  EXPECT_EQ(supported, 0);
  EXPECT_STRNE(TW(tw_last_error)(), "");
  EXPECT_EQ(TW(tw_supports)("head_dim: 64", nullptr, "sm_1", &supported), TW_ERROR_USAGE);
}

TEST_F(CApi, NullsAreHarmless) {
  TW(tw_runtime_destroy)(nullptr);
  TW(tw_kernel_destroy)(nullptr);
  TW(tw_options_init)(nullptr);
  EXPECT_STREQ(TW(tw_kernel_info)(nullptr), "");
  EXPECT_STREQ(TW(tw_kernel_source)(nullptr), "");
  EXPECT_STREQ(TW(tw_runtime_info)(nullptr), "");
  EXPECT_EQ(TW(tw_runtime_create)(nullptr, nullptr), TW_ERROR_USAGE);
}

}  // namespace
