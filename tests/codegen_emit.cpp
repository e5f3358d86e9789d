// The emitted source: deterministic, self-contained, the same kernel for every back end.
#include "codegen/emit.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <filesystem>
#include <sstream>

#include "codegen/template_items.h"
#include "codegen/templates.h"

namespace tilewright {
namespace {

Source emitted(const std::string& yaml, Backend backend = Backend::device, const char* target = "sm_80") {
  const AttentionSpec spec = parse_spec(yaml, "spec");
  const Target& where = target_by_name(target);
  return emit(spec, choose_schedule(spec, where), where, backend);
}

TEST(Emit, SameBytesInAnyProcessLocaleAndDirectory) {
  const std::string yaml = "{head_dim: 80, mask: {window: [100, 3]}, softcap: 12.5, lse: true}";
  const std::string expected = emitted(yaml).text;
  EXPECT_EQ(emitted(yaml).text, expected);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // de_DE writes 12,5; where the locale is not installed, the directory and the environment still differ.
    setlocale(LC_ALL, "de_DE.UTF-8");
    setenv("LC_ALL", "de_DE.UTF-8", 1);
    setenv("HOME", "/nonexistent", 1);
    std::filesystem::current_path("/");
    _exit(emitted(yaml).text == expected ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

/// Lines that are neither empty nor a comment alone.
int lines_of_code(const std::string& text) {
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find_first_not_of(' ');
    count += begin != std::string::npos && line.compare(begin, 2, "//") != 0;
  }
  return count;
}

TEST(Emit, NeedsNoHeaderAndFitsAPage) {
  for (const char* target : {"sm_80", "sm_90a"}) {
    const Source source =
        emitted("{head_dim: 256, mask: {window: [5, 5]}, softcap: 3, lse: true}", Backend::device, target);
    EXPECT_EQ(source.text.find("#include"), std::string::npos);
    EXPECT_LE(lines_of_code(source.text), 900);
    EXPECT_EQ(source.kernel_name, "attention_forward");
    EXPECT_EQ(source.file_name, "attention_forward.cu");
  }
}

TEST(Emit, NamesSpecScheduleAndTarget) {
  const std::string text = emitted("{head_dim: 64, mask: causal}").text;
  const std::string head = text.substr(0, text.find("\n\n"));
  for (const char* part : {"sm80", "sm_80", "m 128, n 64", "head_dim: 64", "mask: causal"})
    EXPECT_NE(head.find(part), std::string::npos) << part << " in " << head;
}

TEST(Emit, PrintsOnlyWhatTheKernelUses) {
  const auto has = [](const std::string& yaml, const char* part) {
    return emitted(yaml).text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has("{head_dim: 64}", ".bf16.bf16."));
  EXPECT_FALSE(has("{head_dim: 64, dtype: fp16}", "bf16"));
  EXPECT_TRUE(has("{head_dim: 64, dtype: fp16}", ".f16.f16."));
  EXPECT_FALSE(has("{head_dim: 64}", "SimulatorInterface"));
  EXPECT_FALSE(has("{head_dim: 64}", "typedef unsigned long long"));  // a type that no part of it names
}

TEST(Emit, TheKernelIsTheSameForEveryBackend) {
  const auto kernel_part = [](const std::string& text) {
    const size_t begin = text.find("// --- Which keys"), end = text.find("\nextern \"C\" void");
    EXPECT_NE(begin, std::string::npos);
    return text.substr(begin, end == std::string::npos ? end : end - begin);
  };
  const std::string yaml = "{head_dim: 64, mask: causal, lse: true}";
  EXPECT_EQ(kernel_part(emitted(yaml).text), kernel_part(emitted(yaml, Backend::simulator).text));
}

TEST(Emit, EveryKeyOfTheSpecReachesTheSource) {
  const std::string base = emitted("{head_dim: 64}").text;
  for (const char* yaml : {"{head_dim: 72}", "{head_dim: {qk: 64, v: 32}}", "{head_dim: 64, dtype: fp16}",
                           "{head_dim: 64, gqa_ratio: 2}", "{head_dim: 64, mask: causal}",
                           "{head_dim: 64, mask: causal_top_left}", "{head_dim: 64, softcap: 1}",
                           "{head_dim: 64, lse: true}", "{head_dim: 64, blocks: {n: 32}}"})
    EXPECT_NE(emitted(yaml).text, base) << yaml;
  EXPECT_EQ(emitted("{name: other, head_dim: 64}").text, base);
}

TEST(TemplateItems, NamesOfDeclarations) {
  const std::string text = R"(// Title: what it is for.

typedef unsigned int u32;

/// A constant.
constexpr int answer = 42;

struct Pair {
  int first, second;  // a comment with a brace }
};

template <int count>
__device__ __forceinline__ int sum(const Pair& pair) { return pair.first + count; }

/// A primitive.
PRIMITIVE int here(int x)
DEVICE { return x; }
SIMULATOR { return simulator->here(x, site); }

extern "C" __global__ void __launch_bounds__(32, 1)
kernel(Pair p) { sum<1>(p); }
)";
  const auto items = parse_template(text, Backend::simulator);
  ASSERT_EQ(items.size(), 6u);
  const char* names[] = {"u32", "answer", "Pair", "sum", "here", "kernel"};
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(items[i].name, names[i]);
  EXPECT_EQ(items[1].text, "/// A constant.\nconstexpr int answer = 42;\n");
  EXPECT_NE(
      items[4].text.find("int here(int x, int site = __builtin_LINE()) { return simulator->here(x, site); }"),
      std::string::npos)
      << items[4].text;
  EXPECT_EQ(parse_template(text, Backend::device)[4].text,
            "/// A primitive.\n__device__ __forceinline__ int here(int x) { return x; }\n");
  EXPECT_EQ(template_title(text), "Title");
}

// The rule of the house: machine instructions in the primitives alone, and shared memory reached through them
// alone.
TEST(Templates, OnlyPrimitivesTouchTheMachine) {
  for (int i = 0; i < embedded_template_count; ++i) {
    const auto& [file, text] = embedded_templates[i];
    if (file.substr(0, 11) == "primitives/") continue;
    for (const char* word : {"asm", "__shared__", "threadIdx", "blockIdx", "__syncthreads", "__shfl", "#if"})
      EXPECT_EQ(text.find(word), std::string_view::npos) << word << " in " << file;
  }
}

}  // namespace
}  // namespace tilewright
