#include "runtime/cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <thread>

#include "codegen/error.h"
#include "tests/support/runtime_support.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using test::ScopedEnvironment;
using test::TemporaryDirectory;
using test::WarningRecorder;

class FakeCompiler : public Compiler {
 public:
  std::string identity() override { return name; }
  std::vector<std::string> options(const Target&, bool) override { return arguments; }
  CompiledImage compile(const Source&, const Target&, bool) override { return {}; }
  std::string name = "fake 1";
  std::vector<std::string> arguments = {"-a", "-b"};
};

CacheEntry example_entry(const CacheKey& key) {
  CacheEntry entry;
  entry.key = key;
  entry.spec = "head_dim: 64\n";
  entry.schedule = "m 64";
  entry.target = "sm_80";
  entry.kernel_name = "attention_forward";
  entry.compiled.image = std::string(
      "\x7f"
      "ELF\0image",
      10);
  entry.compiled.report = {.compiler = "fake",
                           .command = "fake -a",
                           .milliseconds = 1.5,
                           .registers = 7,
                           .spill_bytes = 8,
                           .shared_memory = 9,
                           .notes = {"one", "two"}};
  return entry;
}

const CacheKey example_key{std::string(32, 'a'), std::string(32, 'b')};

KernelCache::Options in(const fs::path& directory) {
  return {.directory = directory};
}

/// Asks the cache; whether it had to compile.
bool compiles(KernelCache& cache, const CacheKey& key = example_key) {
  bool made = false;
  cache.fetch(key, [&] {
    made = true;
    return example_entry(key);
  });
  return made;
}

TEST(CacheEntry, SurvivesEncoding) {
  CacheEntry entry = decode_entry(encode_entry(example_entry(example_key)));
  EXPECT_EQ(entry.key, example_key);
  EXPECT_EQ(entry.spec, "head_dim: 64\n");
  EXPECT_EQ(entry.schedule, "m 64");
  EXPECT_EQ(entry.target, "sm_80");
  EXPECT_EQ(entry.kernel_name, "attention_forward");
  EXPECT_EQ(entry.compiled.image, example_entry(example_key).compiled.image);
  const CompileReport& report = entry.compiled.report;
  EXPECT_EQ(report.compiler, "fake");
  EXPECT_EQ(report.command, "fake -a");
  EXPECT_EQ(report.milliseconds, 1.5);
  EXPECT_EQ(report.registers, 7);
  EXPECT_EQ(report.spill_bytes, 8);
  EXPECT_EQ(report.shared_memory, 9);
  EXPECT_EQ(report.notes, (std::vector<std::string>{"one", "two"}));
}

TEST(CacheEntry, EveryBitAndEveryLengthIsChecked) {
  const std::string good = encode_entry(example_entry(example_key));
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_THROW(decode_entry(good.substr(0, length)), Error) << length;
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] ^= 1 << (i % 8);
    EXPECT_THROW(decode_entry(bad), Error) << "byte " << i;
  }
  EXPECT_THROW(decode_entry(good + "x"), Error);
}

TEST(Cache, SecondTimeFromDisk) {
  TemporaryDirectory directory;
  KernelCache cache(in(directory / "cache"));
  EXPECT_TRUE(compiles(cache));
  EXPECT_FALSE(compiles(cache));
  KernelCache another(in(directory / "cache"));
  EXPECT_FALSE(compiles(another));
  struct stat status;
  ASSERT_EQ(stat((directory / "cache").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  EXPECT_EQ(test::files_below(directory / "cache").size(), 1u) << "only the entry is left";
}

// Case H3.
TEST(Cache, BadEntriesAreRebuiltWithOneWarning) {
  const struct {
    const char* name;
    std::function<void(std::string&)> damage;
  } cases[] = {
      {"cut in half", [](std::string& bytes) { bytes.resize(bytes.size() / 2); }},
      {"empty", [](std::string& bytes) { bytes.clear(); }},
      {"header bit", [](std::string& bytes) { bytes[12] ^= 4; }},
      {"body bit", [](std::string& bytes) { bytes[bytes.size() / 2] ^= 1; }},
      {"checksum bit", [](std::string& bytes) { bytes[bytes.size() - 3] ^= 2; }},
      {"another key's entry",
       [](std::string& bytes) {
         bytes = encode_entry(example_entry({std::string(32, 'a'), std::string(32, 'c')}));
       }},
  };
  for (const auto& [name, damage] : cases) {
    TemporaryDirectory directory;
    KernelCache cache(in(directory.path() / "cache"));
    compiles(cache);
    const fs::path file = cache.directory()->file_of(example_key);
    std::string bytes = test::read_text(file);
    damage(bytes);
    test::write_text(file, bytes);
    WarningRecorder warnings;
    EXPECT_TRUE(compiles(cache)) << name;
    ASSERT_EQ(warnings.texts.size(), 1u) << name;
    EXPECT_NE(warnings.texts[0].find(file.string()), std::string::npos) << warnings.texts[0];
    EXPECT_FALSE(compiles(cache)) << name;
  }
}

// Case H4.
TEST(Cache, TimeStampsDoNotMatter) {
  TemporaryDirectory directory;
  KernelCache cache(in(directory.path()));
  compiles(cache);
  for (time_t stamp : {time_t{0}, time(nullptr) + 365 * 86400}) {
    const timespec times[2] = {{stamp, 0}, {stamp, 0}};
    for (const auto& entry : fs::recursive_directory_iterator(directory.path()))
      ASSERT_EQ(utimensat(AT_FDCWD, entry.path().c_str(), times, 0), 0);
    EXPECT_FALSE(compiles(cache));
  }
}

// Case H5.
TEST(Cache, KeysFollowWhatIsCompiled) {
  TemporaryDirectory directory;
  KernelCache cache(in(directory.path()));
  FakeCompiler compiler;
  const Target& target = target_by_name("sm_80");
  auto key_of = [&](const std::string& yaml) {
    AttentionSpec spec = parse_spec(yaml, "spec");
    return cache
        .key(emit(spec, choose_schedule(spec, target), target, Backend::device), target, false, &compiler)
        .name();
  };
  const std::string base =
      "name: base\nhead_dim: 64\ndtype: bf16\ngqa_ratio: 4\nmask: causal\nlayout: bshd\n"
      "blocks: {m: 64, n: 64, stages: 2, warps: 4}\nsoftmax_scale: 0.125\nsoftcap: 30\nlse: true\n";
  const std::pair<const char*, const char*> changes[] = {
      {"head_dim: 64", "head_dim: 72"},
      {"head_dim: 64", "head_dim: {qk: 64, v: 72}"},
      {"bf16", "fp16"},
      {"gqa_ratio: 4", "gqa_ratio: 5"},
      {"causal", "none"},
      {"causal", "causal_top_left"},
      {"causal", "{window: [8, 0]}"},
      {"bshd", "bhsd"},
      {"m: 64", "m: 128"},
      {"n: 64", "n: 32"},
      {"stages: 2", "stages: 3"},
      {"warps: 4", "warps: 2"},
      {"0.125", "0.126"},
      {"0.125", "launch"},
      {"softcap: 30", "softcap: 31"},
      {"lse: true", "lse: false"},
  };
  std::vector<std::string> keys = {key_of(base)};
  for (const auto& [from, to] : changes) {
    std::string yaml = base;
    yaml.replace(yaml.find(from), std::string(from).size(), to);
    const std::string key = key_of(yaml);
    EXPECT_EQ(std::count(keys.begin(), keys.end(), key), 0) << from << " -> " << to;
    keys.push_back(key);
  }
  EXPECT_EQ(
      key_of(
          "# a comment\nlse:   true\nsoftcap: 30.0\nmask: causal\nlayout: bshd\ngqa_ratio: 4\nname: other\n"
          "softmax_scale: 1.25e-1\nhead_dim: {v: 64, qk: 64}\ndtype: bf16\n"
          "blocks: {warps: 4, n: 64, stages: 2, m: 64}\n"),
      keys[0]);

  const AttentionSpec spec = parse_spec(base, "spec");
  const Source source = emit(spec, choose_schedule(spec, target), target, Backend::device);
  auto key = [&] { return cache.key(source, target, false, &compiler); };
  const CacheKey before = key();
  EXPECT_NE(cache.key(source, target, true, &compiler).source, before.source);
  EXPECT_NE(cache.key(source, target_by_name("sm_90a"), false, &compiler).source, before.source);
  compiler.name = "fake 2";
  EXPECT_EQ(key().source, before.source);
  EXPECT_NE(key().compiler, before.compiler);
  compiler.name = "fake 1";
  compiler.arguments = {"-b", "-a"};
  EXPECT_NE(key().compiler, before.compiler);
}

// Case H6. No place for a cache: kernels all the same, and one warning that names the variable.
TEST(Cache, UnusableDirectoriesFallBackToMemory) {
  TemporaryDirectory directory;
  test::write_text(directory / "file", "in the way");
  const fs::path places[] = {directory / "file", directory / "file/below", "/proc/tilewright"};
  for (const auto& place : places) {
    WarningRecorder warnings;
    for (int i = 0; i < 3; ++i) {
      KernelCache cache(in(place));
      EXPECT_FALSE(cache.directory());
      EXPECT_TRUE(compiles(cache));
    }
    ASSERT_EQ(warnings.texts.size(), 1u) << place;
    EXPECT_NE(warnings.texts[0].find("TILEWRIGHT_CACHE_DIR"), std::string::npos) << warnings.texts[0];
    EXPECT_NE(warnings.texts[0].find(place.string()), std::string::npos) << warnings.texts[0];
  }
}

// As an ordinary user: root may write everywhere.
TEST(Cache, ReadOnlyDirectory) {
  TemporaryDirectory directory;
  const fs::path place = directory / "cache";
  {
    KernelCache cache(in(place));
    compiles(cache);
  }
  CacheKey other = example_key;
  other.source[0] = 'c';
  EXPECT_EQ(test::in_child([&] {
              if (geteuid() == 0) {
                constexpr uid_t nobody = 65534;
                for (const auto& entry : fs::recursive_directory_iterator(directory.path()))
                  if (chown(entry.path().c_str(), nobody, nobody) != 0) return 1;
                if (chown(directory.path().c_str(), nobody, nobody) != 0 || setuid(nobody) != 0) return 2;
              }
              for (const auto& entry : fs::recursive_directory_iterator(place))
                if (entry.is_directory()) chmod(entry.path().c_str(), 0500);
              chmod(place.c_str(), 0500);
              WarningRecorder warnings;
              KernelCache cache(in(place));
              const bool hit = !compiles(cache), miss = compiles(cache, other) && compiles(cache, other);
              const bool warned = warnings.texts.size() == 1 &&
                                  warnings.texts[0].find("TILEWRIGHT_CACHE_DIR") != std::string::npos;
              for (const auto& entry : fs::recursive_directory_iterator(place))
                if (entry.is_directory()) chmod(entry.path().c_str(), 0700);
              chmod(place.c_str(), 0700);
              return hit && miss && warned ? 0 : 3;
            }),
            0);
}

TEST(Cache, NeitherHomeNorAnythingElse) {
  ScopedEnvironment cache_directory("TILEWRIGHT_CACHE_DIR", std::nullopt), home("HOME", std::nullopt),
      xdg("XDG_CACHE_HOME", std::nullopt);
  WarningRecorder warnings;
  KernelCache cache({});
  EXPECT_TRUE(compiles(cache));
  ASSERT_EQ(warnings.texts.size(), 1u);
  EXPECT_NE(warnings.texts[0].find("TILEWRIGHT_CACHE_DIR"), std::string::npos);
}

TEST(Cache, DefaultDirectoryFollowsTheEnvironment) {
  ScopedEnvironment own("TILEWRIGHT_CACHE_DIR", "/a"), xdg("XDG_CACHE_HOME", "/b"), home("HOME", "/c");
  EXPECT_EQ(default_cache_directory(), "/a");
  ScopedEnvironment no_own("TILEWRIGHT_CACHE_DIR", std::nullopt);
  EXPECT_EQ(default_cache_directory(), "/b/tilewright");
  ScopedEnvironment relative("XDG_CACHE_HOME", "b");
  EXPECT_EQ(default_cache_directory(), "/c/.cache/tilewright");
}

// A limit on file sizes stands in for a full disk.
TEST(Cache, FullDisk) {
  TemporaryDirectory directory;
  EXPECT_EQ(test::in_child([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{100, 100};
              if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
              WarningRecorder warnings;
              KernelCache cache(in(directory / "cache"));
              CacheKey other = example_key;
              other.source[5] = 'c';
              if (!compiles(cache) || !compiles(cache, other)) return 2;
              if (warnings.texts.size() != 1) return 3;
              if (warnings.texts[0].find("TILEWRIGHT_CACHE_DIR") == std::string::npos) return 4;
              return test::files_below(directory / "cache").empty() ? 0 : 5;
            }),
            0);
}

TEST(Cache, DirectoriesOfOthersAreRefused) {
  TemporaryDirectory directory;
  fs::create_directory(directory / "open");
  fs::permissions(directory / "open", fs::perms::group_write, fs::perm_options::add);
  EXPECT_NE(untrusted_because(directory / "open").find("can be written by other users"), std::string::npos);
  if (geteuid() == 0) {
    fs::create_directory(directory / "foreign");
    ASSERT_EQ(chown((directory / "foreign").c_str(), 12345, 0), 0);
    EXPECT_NE(untrusted_because(directory / "foreign").find("belongs to another user (uid 12345)"),
              std::string::npos);
  }
  WarningRecorder warnings;
  KernelCache cache(in(directory / "open"));
  EXPECT_FALSE(cache.directory());
  EXPECT_EQ(warnings.texts.size(), 1u);
}

// Case H7. Other root, no compiler: an entry by any compiler serves.
TEST(Cache, MovedCacheWithoutACompiler) {
  TemporaryDirectory directory;
  {
    KernelCache cache(in(directory / "one"));
    compiles(cache);
  }
  fs::rename(directory / "one", directory / "two");
  KernelCache cache(in(directory / "two"));
  const CacheKey unknown_compiler{example_key.source, ""};
  EXPECT_FALSE(compiles(cache, unknown_compiler));
  EXPECT_TRUE(compiles(cache, {std::string(32, 'd'), ""}));
}

TEST(Cache, SiteDirectoryComesFirstAndIsNeverWritten) {
  TemporaryDirectory directory;
  {
    KernelCache site(in(directory / "site"));
    compiles(site);
  }
  const size_t before = test::files_below(directory / "site").size();
  ScopedEnvironment variable("TILEWRIGHT_SITE_CACHE_DIR", (directory / "site").string());
  KernelCache cache(in(directory / "own"));
  EXPECT_FALSE(compiles(cache));
  EXPECT_TRUE(test::files_below(directory / "own").empty());
  CacheKey other = example_key;
  other.source[0] = 'c';
  EXPECT_TRUE(compiles(cache, other));
  EXPECT_EQ(test::files_below(directory / "site").size(), before);
}

TEST(Cache, ListAndVerify) {
  TemporaryDirectory directory;
  KernelCache cache(in(directory / "cache"));
  CacheKey other = example_key;
  other.source[0] = 'c';
  compiles(cache);
  compiles(cache, other);
  test::write_text(cache.directory()->file_of(other), "rubbish");
  auto listings = cache.directory()->list();
  ASSERT_EQ(listings.size(), 2u);
  ASSERT_TRUE(listings[0].entry);
  EXPECT_EQ(listings[0].entry->target, "sm_80");
  EXPECT_GT(listings[0].bytes, 100u);
  EXPECT_FALSE(listings[1].entry);
  EXPECT_FALSE(listings[1].problem.empty());
}

TEST(Cache, HashedBytesAreKeptOnRequest) {
  TemporaryDirectory directory;
  KernelCache cache(in(directory / "cache"));
  FakeCompiler compiler;
  const Source source{.text = "int x;\n", .file_name = "f.cu", .kernel_name = "f"};
  ScopedEnvironment variable("TILEWRIGHT_CACHE_DEBUG", "1");
  const CacheKey key = cache.key(source, target_by_name("sm_80"), false, &compiler);
  EXPECT_NE(test::read_text(directory / "cache/hashed" / (key.source + ".txt")).find("int x;"),
            std::string::npos);
  EXPECT_NE(test::read_text(directory / "cache/hashed" / (key.compiler + ".txt")).find("fake 1"),
            std::string::npos);
}

TEST(Cache, OneCompileForManyThreads) {
  TemporaryDirectory directory;
  KernelCache cache(in(directory / "cache"));
  std::atomic<int> made{0}, asking{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      ++asking;
      cache.fetch(example_key, [&] {
        while (asking < 8) std::this_thread::yield();
        ++made;
        return example_entry(example_key);
      });
    });
  threads.clear();
  EXPECT_EQ(made, 1);
}

// Also without a directory, whose lock would keep the second one out in any case.
TEST(Cache, NobodyCompilesWhileAnotherThreadDoes) {
  KernelCache cache({.disk = false});
  std::atomic<bool> inside{false}, together{false};
  auto make = [&] {
    together = together || inside.exchange(true);
    for (int i = 0; i < 50 && !together; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    inside = false;
    return example_entry(example_key);
  };
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { cache.fetch(example_key, make); });
  threads.clear();
  EXPECT_FALSE(together);
}

TEST(Cache, FailuresAreForgotten) {
  TemporaryDirectory directory;
  KernelCache cache(in(directory / "cache"));
  auto fail = []() -> CacheEntry { throw Error(ErrorKind::compile, "no"); };
  EXPECT_EQ(test::message_of<Error>([&] { cache.fetch(example_key, fail); }), "no");
  EXPECT_TRUE(test::files_below(directory / "cache").empty());
  EXPECT_TRUE(compiles(cache));
}

}  // namespace
}  // namespace tilewright
