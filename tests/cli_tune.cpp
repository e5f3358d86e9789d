// `tilewright tune` and `tilewright report` as people run them, without a GPU.
#include <fmt/format.h>

#include "codegen/shape_bucket.h"
#include "runtime/tuning_records.h"
#include "tests/cli_harness.h"

namespace tilewright::cli_test {
namespace {

class TuneTest : public CommandTest {
 protected:
  /// A machine with GPUs that compute nothing.
  void pretend_gpus(int count) {
    environment["TILEWRIGHT_DRIVER"] = TILEWRIGHT_BINARY_DIR "/fakes/fake_driver.so";
    environment["TILEWRIGHT_NVRTC"] = TILEWRIGHT_BINARY_DIR "/fakes/fake_nvrtc.so";
    environment["FAKE_DRIVER_DEVICES"] = std::to_string(count);
  }
  /// A record that llama-3-8b-prefill gets another schedule by than by the default rule.
  void write_record(const std::string& gpu, int multiprocessors, int block_n) {
    const AttentionSpec spec = parse_spec(contents(shipped("llama-3-8b-prefill")), "spec");
    const Schedule best{Family::sm90, 128, block_n, 12, 2, false, true};
    const Schedule usual{Family::sm90, 128, 128, 12, 2, false, true};
    const GpuModel model{gpu, "sm_90a", multiprocessors, 1, 1};
    std::vector<TuningRecord> records;
    for (const ShapeBucket& bucket : shape_buckets())
      records.push_back({record_key(spec),
                         std::string(bucket.name),
                         {2, 16, 4096, 4096},
                         {best, 800, 2},
                         {usual, 824, 1},
                         0.03,
                         0.01,
                         "1.2",
                         "NVRTC",
                         "2026-11-30",
                         "0.1.0"});
    merge_records(folder / "records" / record_file_name(model), model, records);
    environment["TILEWRIGHT_RECORDS_DIR"] = (folder / "records").string();
  }
};

TEST_F(TuneTest, DryRunCountsAndRanks) {
  const Result result =
      tilewright({"tune", shipped("llama-3-8b-prefill"), "--dry-run", "--target", "sm_90a"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(contains(result.out, "points, ")) << result.out;
  EXPECT_TRUE(contains(result.out, "the tiles take # bytes of shared memory"));
  EXPECT_TRUE(contains(result.out, "default")) << "the default is among the candidates";
  for (const char* bucket : {"Bucket few", "Bucket short", "Bucket long"})
    EXPECT_TRUE(contains(result.out, bucket));
}

TEST_F(TuneTest, DryRunOfEveryShippedSpecAsJson) {
  std::vector<std::string> arguments = {"tune",  "--dry-run", "--json", "--target",
                                        "sm_86", "--bucket",  "short"};
  for (const auto& entry : std::filesystem::directory_iterator(TILEWRIGHT_SOURCE_DIR "/specs"))
    if (entry.path().extension() == ".yaml") arguments.push_back(entry.path().string());
  const Result result = tilewright(arguments);
  EXPECT_EQ(result.code, 0) << result.err;
  const nlohmann::json list = result.json();
  EXPECT_EQ(list.size(), arguments.size() - 7) << "every one, whatever its pass, mask and score";
  for (const auto& spec : list) {
    int refused = 0;
    for (const auto& reason : spec["refused"]) refused += reason["count"].get<int>();
    EXPECT_EQ(spec["points"].get<int>(), refused + spec["legal"].get<int>());
    int candidates = 0;
    for (const auto& row : spec["buckets"][0]["ranked"]) candidates += row["candidate"].get<bool>();
    EXPECT_GE(candidates, std::min(spec["legal"].get<int>(), 5));
    EXPECT_LE(candidates, 41);
  }
}

TEST_F(TuneTest, WithoutAGpuOrWithABadOptionItSaysWhatIsMissing) {
  environment["TILEWRIGHT_DRIVER"] = "/nonexistent/libcuda.so";
  Result result = tilewright({"tune", shipped("minilm-l6-v2"), "--records", "records"});
  EXPECT_EQ(result.code, 3);
  EXPECT_TRUE(contains(result.err, "no CUDA driver")) << result.err;
  result = tilewright({"tune", shipped("minilm-l6-v2"), "--records", "records", "--budget", "soon"});
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(contains(result.err, "--budget soon is no time")) << result.err;
  result = tilewright({"tune", shipped("minilm-l6-v2"), "--bucket", "shrt", "--records", "records"});
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(contains(result.err, "nearest: short")) << result.err;
  result = tilewright({"tune", shipped("minilm-l6-v2")});
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(contains(result.err, "nowhere to put records")) << result.err;
  pretend_gpus(1);
  result = tilewright({"tune", shipped("minilm-l6-v2"), "--records", "records", "--device", "3"});
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(contains(result.err, "no GPU to tune on")) << result.err;
}

// The GPUs compute nothing, so that every candidate is wrong: none may win.
TEST_F(TuneTest, SeveralGpusAndNothingRight) {
  pretend_gpus(2);
  write("a.yaml", "{head_dim: 32, blocks: {n: 32}}");
  write("b.yaml", "head_dim: 32\n");
  write("c.yaml", "head_dim: 32\nlse: true\n");
  const Result result = tilewright({"tune", "a.yaml", "b.yaml", "c.yaml", "--records", "records", "--json",
                                    "--bucket", "few", "--candidates", "3", "--jobs", "2"});
  EXPECT_EQ(result.code, 5) << result.err;
  EXPECT_TRUE(contains(result.err, "a is skipped: the spec has `blocks` of its own")) << result.err;
  for (const char* spec : {"b", "c"})
    EXPECT_TRUE(contains(result.err, fmt::format("{}: error: no candidate is right", spec))) << result.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "records" / "fake-gpu.yaml"));
  const nlohmann::json list = result.json();
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[1]["spec"], "b") << "in the order of the command line";
  for (const auto& candidate : list[1]["buckets"][0]["candidates"])
    EXPECT_TRUE(contains(candidate["refused"], "wrong with")) << candidate;
}

TEST_F(TuneTest, ExplainCompileAndEmitUseRecords) {
  const auto explain = [&] {
    return tilewright(
               {"explain", shipped("llama-3-8b-prefill"), "--target", "sm_90a", "--no-compile", "--json"})
        .json();
  };
  write_record("Test GPU", 132, 112);
  nlohmann::json json = explain();
  EXPECT_EQ(json["schedule"]["n"], 112);
  EXPECT_EQ(json["schedule"]["from"], "record of Test GPU, same generation");
  EXPECT_TRUE(contains(json["schedule"]["reason"], "measured on Test GPU")) << json["schedule"];
  EXPECT_TRUE(contains(tilewright({"emit", shipped("llama-3-8b-prefill"), "--target", "sm_90a"}).out,
                       "block_n = 112;"));
  environment["TILEWRIGHT_NVRTC"] = TILEWRIGHT_BINARY_DIR "/fakes/fake_nvrtc.so";
  EXPECT_TRUE(
      contains(tilewright({"compile", shipped("llama-3-8b-prefill"), "--target", "sm_90a"}).out, "n 112"));
  pretend_gpus(1);
  write_record("Fake GPU", 8, 96);
  json = explain();
  EXPECT_EQ(json["schedule"]["n"], 96);
  EXPECT_EQ(json["schedule"]["from"], "record of Fake GPU");
  write("records/broken.yaml", "gpu: [");
  const Result warned =
      tilewright({"explain", shipped("llama-3-8b-prefill"), "--target", "sm_90a", "--no-compile"});
  EXPECT_EQ(warned.code, 0);
  EXPECT_TRUE(contains(warned.err, "tuning records are left out")) << warned.err;
}

TEST_F(TuneTest, ResumeLeavesOutWhatHasRecords) {
  pretend_gpus(1);
  write_record("Fake GPU", 8, 96);
  const Result result = tilewright({"tune", shipped("llama-3-8b-prefill"), "--resume"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(contains(result.err, "llama-3-8b-prefill: has records already")) << result.err;
}

TEST_F(TuneTest, AnInterruptEndsItAtOnceAndSaysWhatIsKept) {
  pretend_gpus(1);
  environment["FAKE_NVRTC_SLEEP"] = "100";
  write("spec.yaml", "head_dim: 32\n");
  std::string command = "cd " + folder.string() + " && env -i";
  for (const auto& [name, value] : environment) command += " " + name + "=" + value;
  command += " timeout --preserve-status --kill-after=20 --signal=INT 1 " + command_path() +
             " tune spec.yaml --records records 2> interrupted.txt > /dev/null";
  const int status = std::system(command.c_str());
  const std::string said = contents(folder / "interrupted.txt");
  EXPECT_EQ(WEXITSTATUS(status), 130) << said;
  EXPECT_TRUE(contains(said, "interrupted; 0 of 1 specs are tuned")) << said;
}

/// Chromium, if the machine has it.
std::string browser() {
  for (const char* name : {"chromium", "chromium-headless-shell", "chromium-browser", "google-chrome"})
    for (const char* directory : {"/usr/bin/", "/usr/local/bin/"})
      if (std::filesystem::exists(std::string(directory) + name)) return std::string(directory) + name;
  return "";
}

// What a reader would see: every chart has a size, no label leaves its chart, no number is missing.
constexpr const char* checks = R"(<script>
const problems = [];
const charts = [...document.querySelectorAll('svg')];
for (const svg of charts) {
  const frame = svg.getBoundingClientRect();
  if (frame.width < 50 || frame.height < 20) problems.push('no size: ' + svg.getAttribute('aria-label'));
  for (const part of svg.querySelectorAll('text, rect, circle, line, polyline')) {
    const box = part.getBoundingClientRect();
    if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
      problems.push('outside: ' + part.outerHTML);
  }
}
if (document.documentElement.scrollWidth > innerWidth) problems.push('the page is wider than the window');
for (const word of ['nan', 'inf', 'undefined', 'null'])
  if (new RegExp('\\b-?' + word + '\\b').test(document.body.innerText + charts.map(svg => svg.outerHTML).join())) problems.push(word);
document.body.setAttribute('data-checked', `${charts.length} charts, ${document.querySelectorAll('circle').length > 20 ? 'dots' : 'none'}, ` +
  `${document.querySelectorAll('tbody tr').length} rows, problems: ${problems.slice(0, 5).join(' | ') || 'none'}`);
</script>)";

TEST_F(TuneTest, ReportIsRightInABrowser) {
  const std::string chromium = browser();
  if (chromium.empty()) GTEST_SKIP() << "no Chromium on this machine (scripts/setup.sh test installs it)";
  write_record("Test <GPU> \"1\"", 132, 112);
  nlohmann::json line = {{"spec", "a long name of a spec & more"},
                         {"key", "head_dim: 128\n"},
                         {"gpu", "Test <GPU>"},
                         {"bucket", "long"},
                         {"timed", 8},
                         {"correlation", 0.9},
                         {"throttled", 0}};
  for (int n : {32, 64, 96, 128})
    for (int m : {64, 128}) {
      nlohmann::json candidate = {
          {"schedule", fmt::format("sm90, m {}, n {}, warps 12, stages 2, ping-pong", m, n)},
          {"blocks", {{"family", "sm90"}, {"m", m}, {"n", n}}},
          {"median", 900.0 - n},
          {"slower", (128 - n) / 500.0 + (128 - m) / 640.0}};
      for (int i = 0; i < 12; ++i) candidate["samples"].push_back(900 - n + i % 5);
      line["candidates"].push_back(candidate);
    }
  line["candidates"].push_back(
      {{"schedule", "sm80, m 16"}, {"blocks", {{"family", "sm80"}}}, {"refused", "spills"}});
  write("log.jsonl", line.dump() + "\nnot a line\n");
  const Result result = tilewright({"report", "records", "--log", "log.jsonl", "-o", "report.html"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(contains(result.err, "log.jsonl:2 is no line of a tuning log")) << result.err;
  std::string html = contents(folder / "report.html");
  EXPECT_FALSE(contains(html, "http")) << "the page needs nothing else";
  EXPECT_TRUE(contains(html, "Test &lt;GPU&gt;"));
  html.insert(html.find("</body>"), checks);
  write("checked.html", html);
  for (const char* size : {"1200,800", "420,800"}) {
    const std::string command = fmt::format(
        "HOME={0} timeout 60 {1} --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
        "--window-size={2} "
        "--user-data-dir={0}/profile --virtual-time-budget=1000 --dump-dom file://{0}/checked.html > "
        "{0}/dom.html 2> "
        "{0}/browser.txt",
        folder.string(), chromium, size);
    ASSERT_EQ(std::system(command.c_str()), 0) << contents(folder / "browser.txt");
    const std::string dom = contents(folder / "dom.html");
    const size_t at = dom.find("data-checked=\"");
    ASSERT_NE(at, std::string::npos) << dom.substr(0, 500);
    EXPECT_EQ(dom.substr(at + 14, dom.find('"', at + 14) - at - 14),
              fmt::format("4 charts, dots, {} rows, problems: none", shape_buckets().size()))
        << size;
  }
}

TEST_F(TuneTest, ReportWithoutRecordsSaysSo) {
  const Result result = tilewright({"report", "--log", "absent.jsonl"});
  EXPECT_EQ(result.code, 3);
  EXPECT_TRUE(contains(result.err, "cannot read the log absent.jsonl")) << result.err;
}

}  // namespace
}  // namespace tilewright::cli_test
