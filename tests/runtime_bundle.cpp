// Bundles: the file and what damages it, kernels from them without a compiler, and how they are made.
#include "runtime/bundle.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>

#include "codegen/error.h"
#include "runtime/build.h"
#include "runtime/hash.h"
#include "runtime/precompile.h"
#include "runtime/worker_processes.h"
#include "tests/support/runtime_support.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using test::ScopedEnvironment;
using test::TemporaryDirectory;
using test::WarningRecorder;

const char* const fake_nvrtc = TILEWRIGHT_BINARY_DIR "/fakes/fake_nvrtc.so";

CacheEntry example_entry(char key, const std::string& image) {
  CacheEntry entry;
  entry.key = {std::string(32, key), std::string(32, 'e')};
  entry.spec = "head_dim: 64\n";
  entry.schedule = "m 64";
  entry.target = "sm_80";
  entry.kernel_name = "attention_forward";
  entry.compiled.image = image;
  entry.compiled.report = {.compiler = "fake", .milliseconds = 1.5, .registers = 7, .notes = {"one"}};
  return entry;
}

std::string example_bundle() {
  return encode_bundle({example_entry('b', "second"), example_entry('a', std::string("\0first", 6))});
}

/// Puts a number into the bytes and makes the checksums of index and header hold again.
template <typename T>
std::string changed(std::string bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
  uint32_t count = 0;
  std::memcpy(&count, bytes.data() + 12, sizeof count);
  const uint64_t index =
      hash64(std::string_view(bytes).substr(bundle_header_bytes, uint64_t{count} * bundle_record_bytes));
  std::memcpy(bytes.data() + bundle_index_checksum_at, &index, sizeof index);
  const uint64_t header = hash64(std::string_view(bytes).substr(0, bundle_header_checksum_at));
  std::memcpy(bytes.data() + bundle_header_checksum_at, &header, sizeof header);
  return bytes;
}

std::string refusal(const std::string& bytes) {
  return test::message_of<Error>([&] { BundleView view(bytes); });
}

TEST(BundleFormat, KeepsEntriesByKey) {
  const std::string bytes = example_bundle();
  const BundleView view(bytes);
  ASSERT_EQ(view.size(), 2u);
  EXPECT_EQ(view.version(), version());
  EXPECT_EQ(view.key(0), std::string(32, 'a'));
  EXPECT_EQ(view.entry(0).compiled.image, std::string("\0first", 6));
  EXPECT_EQ(view.entry(1).compiled.report.notes, std::vector<std::string>{"one"});
  EXPECT_EQ(view.entry(1).compiled.report.registers, 7);
  EXPECT_EQ(view.find(std::string(32, 'b')), 1u);
  for (const std::string& key : {std::string(32, '0'), std::string(32, 'c'), std::string(32, 'f'),
                                 std::string("../../etc/passwd"), std::string(32, '/'), std::string()})
    EXPECT_EQ(view.find(key), std::nullopt) << key;
  EXPECT_EQ(BundleView(encode_bundle({})).size(), 0u);
}

TEST(BundleFormat, EqualEntriesGiveEqualBytes) {
  CacheEntry slower = example_entry('a', std::string("\0first", 6));
  slower.compiled.report.milliseconds = 99;
  EXPECT_EQ(encode_bundle({slower, example_entry('b', "second"), example_entry('b', "again")}),
            example_bundle());
}

TEST(BundleFormat, EveryBitCounts) {
  const std::string bytes = example_bundle();
  for (size_t i = 0; i < bytes.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      EXPECT_THROW(
          {
            const BundleView view(damaged);
            for (size_t entry = 0; entry < view.size(); ++entry) view.entry(entry);
          },
          Error)
          << "byte " << i << ", bit " << bit;
    }
}

TEST(BundleFormat, CutShortOrTooLong) {
  const std::string bytes = example_bundle();
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_NE(refusal(bytes.substr(0, size)), "") << size;
  EXPECT_NE(refusal(bytes + "x"), "");
}

TEST(BundleFormat, IndexesThatLieAreRefused) {
  const std::string bytes = example_bundle();
  const size_t record = bundle_header_bytes;
  EXPECT_NE(refusal(changed(bytes, 8, uint32_t{7})).find("format 7, expected 1"), std::string::npos);
  // The count alone is changed: the checksum of so long an index cannot even be computed.
  for (const uint32_t count : {3u, 1000u, 0x80000000u, 0xffffffffu}) {
    std::string oversized = bytes;
    std::memcpy(oversized.data() + 12, &count, sizeof count);
    const uint64_t header = hash64(std::string_view(oversized).substr(0, bundle_header_checksum_at));
    std::memcpy(oversized.data() + bundle_header_checksum_at, &header, sizeof header);
    EXPECT_NE(refusal(oversized).find("index"), std::string::npos) << refusal(oversized);
  }
  for (const uint64_t offset : {uint64_t{0}, uint64_t{1} << 40, UINT64_MAX})
    EXPECT_NE(refusal(changed(bytes, record + 16, offset)).find("entry 0"), std::string::npos);
  for (const uint64_t size : {uint64_t{1} << 40, UINT64_MAX, UINT64_MAX - 100})
    EXPECT_NE(refusal(changed(bytes, record + 24, size)).find("beyond the file"), std::string::npos);
  EXPECT_NE(refusal(changed(bytes, record, uint8_t{0xcc})).find("not in order"), std::string::npos);
  EXPECT_NE(refusal(changed(bytes, 16, uint64_t{5})).find("expected 5"), std::string::npos);
  EXPECT_NE(refusal(changed(bytes, record + bundle_record_bytes + 24, uint64_t{3})).find("after the last"),
            std::string::npos);
  // A key that is not its entry's.
  const std::string other = changed(bytes, record, uint8_t{0x11});
  EXPECT_THROW(BundleView(other).entry(0), Error);
}

TEST(BundleFile, IsRefusedWithItsName) {
  TemporaryDirectory directory;
  const auto refusal_of = [](const fs::path& file) {
    return test::message_of<Error>([&] { Bundle bundle(file); });
  };
  const fs::path file = directory / "kernels.twb";
  EXPECT_TRUE(refusal_of(file).starts_with("the bundle " + file.string() + " cannot be used: "));
  EXPECT_NE(refusal_of(directory.path()), "");
  test::write_text(file, "");
  EXPECT_NE(refusal_of(file).find("not a bundle"), std::string::npos);
  test::write_text(file, example_bundle());
  EXPECT_EQ(refusal_of(file), "");
  chmod(file.c_str(), 0666);
  EXPECT_NE(refusal_of(file).find("any user can write it"), std::string::npos);
}

// --- kernels from bundles

class FromBundle : public testing::Test {
 protected:
  /// A bundle of these specs for sm_80 by the fake compiler.
  fs::path bundle_of(std::initializer_list<const char*> specs, const char* name = "kernels.twb") const {
    std::vector<PrecompileJob> jobs;
    for (const char* spec : specs)
      for (PrecompileJob& job : precompile_jobs(parse_spec(spec, "spec"), spec, target_by_name("sm_80")))
        jobs.push_back(job);
    std::vector<CacheEntry> entries;
    // In children of a child: NVRTC is then never loaded here.
    EXPECT_EQ(test::in_child([&] {
                ScopedEnvironment nvrtc("TILEWRIGHT_NVRTC", fake_nvrtc);
                for (const PrecompileResult& result :
                     precompile(jobs, {.cache_directory = directory_ / "made"}, 2)) {
                  if (!result.failure.empty()) return 1;
                  entries.push_back(result.entry);
                }
                test::write_text(directory_ / name, encode_bundle(entries));
                return 0;
              }),
              0);
    return directory_ / name;
  }
  RuntimeOptions options(std::vector<fs::path> bundles, bool compiling = true) const {
    return {.cache_directory = directory_ / "cache", .bundles = std::move(bundles), .compiling = compiling};
  }
  CompiledKernel compiled(const char* spec, const RuntimeOptions& options) const {
    return compile(parse_spec(spec, "spec"), target_by_name("sm_80"), options);
  }

  TemporaryDirectory directory_;
};

const char* const no_nvrtc = "/nonexistent/libnvrtc.so";

// Case H9, as far as the host sees it: the same bits and figures from everywhere.
TEST_F(FromBundle, TheSameAsCompiledAndFromDisk) {
  const fs::path bundle = bundle_of({"head_dim: 64", "head_dim: 32"});
  CompiledKernel kernels[3];
  EXPECT_EQ(test::in_child([&] {
              ScopedEnvironment nvrtc("TILEWRIGHT_NVRTC", fake_nvrtc);
              kernels[0] = compiled("head_dim: 64", options({}));
              kernels[1] = compiled("head_dim: 64", options({}));
              kernels[2] = compiled("head_dim: 64", options({bundle}));
              const CacheResult from[] = {CacheResult::compiled, CacheResult::disk, CacheResult::bundle};
              for (int i = 0; i < 3; ++i) {
                EXPECT_EQ(kernels[i].from, from[i]);
                EXPECT_EQ(kernels[i].image, kernels[0].image);
                EXPECT_EQ(kernels[i].report.registers, kernels[0].report.registers);
                EXPECT_EQ(kernels[i].report.shared_memory, kernels[0].report.shared_memory);
                EXPECT_EQ(kernels[i].report.command, kernels[0].report.command);
              }
              return testing::Test::HasFailure() ? 1 : 0;
            }),
            0);
}

TEST_F(FromBundle, NeedsNoCompiler) {
  const fs::path first = bundle_of({"head_dim: 64"}, "a.twb"), second = bundle_of({"head_dim: 32"}, "b.twb");
  EXPECT_EQ(test::in_child([&] {
              ScopedEnvironment nvrtc("TILEWRIGHT_NVRTC", no_nvrtc);
              ScopedEnvironment bundles("TILEWRIGHT_BUNDLES", first.string() + "::" + second.string() + ":");
              EXPECT_EQ(compiled("head_dim: 64", options({})).from, CacheResult::bundle);
              EXPECT_EQ(compiled("head_dim: 32", options({})).from, CacheResult::bundle);
              const std::string message =
                  test::message_of<Error>([&] { compiled("head_dim: 40", options({})); });
              for (const std::string& part : {std::string(no_nvrtc), std::string("sm_80"), first.string(),
                                              second.string(), std::string("head_dim: 40")})
                EXPECT_NE(message.find(part), std::string::npos) << message;
              EXPECT_TRUE(test::files_below(directory_ / "cache").empty());
              return testing::Test::HasFailure() ? 1 : 0;
            }),
            0);
}

TEST_F(FromBundle, WithCompilingSwitchedOffMissingIsAnError) {
  const fs::path bundle = bundle_of({"head_dim: 64"});
  ScopedEnvironment nvrtc("TILEWRIGHT_NVRTC", fake_nvrtc);
  ScopedEnvironment count("FAKE_NVRTC_COUNT", (directory_ / "count").string());
  EXPECT_EQ(compiled("head_dim: 64", options({bundle}, false)).from, CacheResult::bundle);
  for (const bool by_environment : {false, true}) {
    ScopedEnvironment off("TILEWRIGHT_COMPILING", by_environment ? "0" : "");
    const std::string message =
        test::message_of<Error>([&] { compiled("head_dim: 40", options({bundle}, by_environment)); });
    EXPECT_TRUE(message.starts_with("compiling is switched off")) << message;
    EXPECT_NE(message.find("the bundle " + bundle.string()), std::string::npos) << message;
  }
  EXPECT_FALSE(fs::exists(directory_ / "count"));
}

// Case K6, on a device that is not there.
TEST_F(FromBundle, AllMissingSpecsAreNamedAtOnce) {
  const fs::path bundle = bundle_of({"head_dim: 64"});
  ScopedEnvironment driver("TILEWRIGHT_DRIVER", TILEWRIGHT_BINARY_DIR "/fakes/fake_driver.so"),
      capability("FAKE_DRIVER_CAPABILITY", "8.0"), nvrtc("TILEWRIGHT_NVRTC", no_nvrtc);
  EXPECT_EQ(test::in_child([&] {
              RuntimeOptions from_bundle = options({bundle}, false);
              from_bundle.device.kind = DeviceChoice::Kind::cuda;
              Runtime runtime(from_bundle);
              const AttentionSpec specs[] = {parse_spec("{head_dim: 40, name: first}", "a"),
                                             parse_spec("{head_dim: 64, name: present}", "b"),
                                             parse_spec("{head_dim: 48, name: second}", "c")};
              const std::string message = test::message_of<Error>([&] { runtime.prepare(specs); });
              EXPECT_TRUE(message.starts_with("2 of 3 specs have no kernel:\nfirst: ")) << message;
              for (const std::string& part : {std::string("\nsecond: "), bundle.string(),
                                              std::string("sm_80"), std::string("head_dim: 48")})
                EXPECT_NE(message.find(part), std::string::npos) << message;
              EXPECT_EQ(message.find("present"), std::string::npos) << message;
              CacheResult from;
              runtime.kernel(specs[1], &from);
              EXPECT_EQ(from, CacheResult::memory) << "those that are there are prepared";
              return testing::Test::HasFailure() ? 1 : 0;
            }),
            0);
}

// Blocks of their own: one kernel for all launches.
const char* const one_kernel = "{head_dim: 64, blocks: {n: 64}}";
const char* const another = "{head_dim: 32, blocks: {n: 64}}";

TEST_F(FromBundle, ADamagedKernelIsMadeAgain) {
  const fs::path bundle = bundle_of({one_kernel});
  std::string bytes = test::read_text(bundle);
  bytes[bytes.size() - 40] ^= 1;
  test::write_text(bundle, bytes);
  ScopedEnvironment nvrtc("TILEWRIGHT_NVRTC", fake_nvrtc);
  EXPECT_EQ(test::in_child([&] {
              WarningRecorder warnings;
              EXPECT_EQ(compiled(one_kernel, options({bundle})).from, CacheResult::compiled);
              EXPECT_EQ(warnings.texts.size(), 1u);
              EXPECT_NE(warnings.texts.at(0).find(bundle.string()), std::string::npos)
                  << warnings.texts.at(0);
              return testing::Test::HasFailure() ? 1 : 0;
            }),
            0);
}

TEST_F(FromBundle, InterruptedWorkIsNotDoneAgain) {
  ScopedEnvironment count("FAKE_NVRTC_COUNT", (directory_ / "count").string());
  const std::string first = test::read_text(bundle_of({one_kernel}));
  EXPECT_EQ(test::count_lines(directory_ / "count"), 1);
  const std::string both = test::read_text(bundle_of({another, one_kernel}));
  EXPECT_EQ(test::count_lines(directory_ / "count"), 2);
  EXPECT_EQ(test::read_text(bundle_of({one_kernel})), first);
  fs::remove_all(directory_ / "made");
  EXPECT_EQ(test::read_text(bundle_of({one_kernel, another})), both) << "other order, other times";
}

TEST(PrecompileJobs, CoverTheVariants) {
  const AttentionSpec spec = parse_spec("{head_dim: 72, mask: causal, name: x}", "spec");
  const auto jobs = precompile_jobs(spec, "x", target_by_name("sm_90a"));
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_NE(source_key(jobs[0]), source_key(jobs[1]));
  EXPECT_EQ(jobs[0].spec.name, "") << "the name is no part of a kernel";
  for (const PrecompileJob& job : precompile_ptx_jobs(spec, "x")) {
    EXPECT_EQ(job.target, target_for_device(99, 0).target);
    EXPECT_TRUE(job.as_ptx);
  }
}

// Case J5.
TEST(Precompile, AFailureIsItsOwn) {
  TemporaryDirectory cache;
  const test::ScopedEnvironment nvrtc("TILEWRIGHT_NVRTC", TILEWRIGHT_BINARY_DIR "/fakes/fake_nvrtc.so");
  const AttentionSpec spec = parse_spec("head_dim: 64", "spec");
  const Target& target = target_by_name("sm_80");
  std::vector<PrecompileJob> jobs;
  for (int n : {16, 32, 48, 64}) jobs.push_back({"spec", spec, &target, {Family::sm80, 64, n, 4, 1}});
  jobs[2].spec.head_dim = {72, 64};
  const test::ScopedEnvironment failing("FAKE_NVRTC_REFUSES", "head_dim_qk = 72");
  RuntimeOptions options;
  options.cache_directory = cache.path();
  size_t done = 0;
  const auto outcomes = precompile(jobs, options, 2, [&](size_t, const PrecompileResult&) { ++done; });
  EXPECT_EQ(done, 4u);
  for (size_t i : {0u, 1u, 3u}) EXPECT_EQ(outcomes[i].failure, "") << i;
  EXPECT_NE(outcomes[2].failure.find("refused the source"), std::string::npos) << outcomes[2].failure;
  EXPECT_EQ(outcomes[0].entry.compiled.report.compiler, "NVRTC 12.4");
}

// --- worker processes

TEST(ShareOut, EveryPieceIsDoneOnce) {
  for (const size_t processes : {size_t{1}, size_t{3}, size_t{50}}) {
    std::vector<int> seen(20);
    share_out(
        20, processes, 60, [](size_t piece) { return std::string(piece * 10000, 'x'); },
        [&](size_t piece, const WorkResult& result) {
          ++seen[piece];
          EXPECT_EQ(result.answer.size(), piece * 10000);
          EXPECT_EQ(result.failure, "");
        });
    EXPECT_EQ(seen, std::vector<int>(20, 1));
  }
  share_out(
      0, 4, 60, [](size_t) { return ""; }, [](size_t, const WorkResult&) { FAIL(); });
}

TEST(ShareOut, AChildThatDiesOrHangsCostsItsPieceAlone) {
  int good = 0;
  std::vector<std::string> failures;
  share_out(
      12, 2, 1,
      [](size_t piece) -> std::string {
        if (piece == 3) raise(SIGKILL);
        if (piece == 5) pause();
        if (piece == 7) _exit(5);
        return "done";
      },
      [&](size_t piece, const WorkResult& result) {
        if (result.failure.empty())
          ++good;
        else
          failures.push_back(std::to_string(piece) + ": " + result.failure);
      });
  EXPECT_EQ(good, 9);
  std::sort(failures.begin(), failures.end());
  EXPECT_EQ(failures,
            (std::vector<std::string>{"3: its process was ended by signal 9 (Killed)",
                                      "5: it took longer than 1 s", "7: its process ended with status 5"}));
}

}  // namespace
}  // namespace tilewright
