// Runs build/tilewright as people do: a process with its own folder, environment and exit code.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace tilewright::cli_test {

struct Result {
  int code = -1;  // 128 + signal if it was killed
  std::string out, err;
  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

/// The command that tests start: TILEWRIGHT_TEST_COMMAND, else that of the build, else the one beside the
/// test program (as on a machine that was given the programs alone).
inline std::string command_path() {
  if (const char* given = std::getenv("TILEWRIGHT_TEST_COMMAND"))
    return std::filesystem::absolute(given).string();
  const std::filesystem::path built = TILEWRIGHT_BINARY_DIR "/tilewright";
  std::error_code error;
  if (std::filesystem::exists(built, error)) return built.string();
  return (std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "tilewright").string();
}

/// A temporary folder for every test, removed afterwards; the cache lives in it, and there is no HOME.
class CommandTest : public testing::Test {
 protected:
  CommandTest() {
    std::string name = (std::filesystem::temp_directory_path() / "tilewright-cli-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed");
    folder = name;
    for (const char* kept :
         {"PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CUDA_HOME", "CUDA_PATH", "TILEWRIGHT_NVRTC"}) {
      if (const char* value = std::getenv(kept)) environment[kept] = value;
    }
    environment["TILEWRIGHT_CACHE_DIR"] = (folder / "cache").string();
    environment["TMPDIR"] = folder.string();
  }
  ~CommandTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }

  Result tilewright(const std::vector<std::string>& arguments, const std::string& stdout_file = "") {
    const std::string out = stdout_file.empty() ? (folder / "stdout.txt").string() : stdout_file;
    const std::string err = (folder / "stderr.txt").string();
    std::vector<std::string> words = {command_path()}, variables;
    words.insert(words.end(), arguments.begin(), arguments.end());
    for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
    pid_t process = 0;
    int failed = posix_spawn(&process, words[0].c_str(), &actions, nullptr, pointers(words).data(),
                             pointers(variables).data());
    posix_spawn_file_actions_destroy(&actions);
    if (failed) throw std::runtime_error("cannot start " + words[0]);
    int status = 0;
    waitpid(process, &status, 0);
    Result result;
    result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (stdout_file.empty()) result.out = contents(out);
    result.err = contents(err);
    return result;
  }

  /// Writes a file into the folder; relative names work, as the command runs there.
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder / name, std::ios::binary) << text;
    return name;
  }
  static std::string contents(const std::filesystem::path& file) {
    std::ostringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    return text.str();
  }
  static std::string shipped(const std::string& name) {
    return TILEWRIGHT_SOURCE_DIR "/specs/" + name + ".yaml";
  }

  /// Whether NVRTC is on this machine.
  bool has_nvrtc() {
    const nlohmann::json diagnosis = tilewright({"doctor", "--json"}).json();
    for (const auto& part : diagnosis["parts"]) {
      if (part["name"] == "NVRTC") return part["usable"];
    }
    return false;
  }

  std::filesystem::path folder;
  std::map<std::string, std::string> environment;

 private:
  static std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> list;
    for (std::string& text : texts) list.push_back(text.data());
    list.push_back(nullptr);
    return list;
  }
};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

}  // namespace tilewright::cli_test
