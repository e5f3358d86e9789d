#include "simulator/system_compiler.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

#include "codegen/error.h"
#include "runtime/environment.h"
#include "simulator/scratch_directory.h"

extern char** environ;

namespace tilewright {
namespace {

// Source and shared object stay on disk as long as the code is loaded: a debugger reads both.
class SharedObject : public HostCode {
 public:
  SharedObject(std::unique_ptr<ScratchDirectory> directory, const std::string& file)
      : directory_(std::move(directory)), handle_(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!handle_) {
      throw Error(ErrorKind::environment, std::string("cannot load compiled host code: ") + dlerror());
    }
  }
  ~SharedObject() override { dlclose(handle_); }
  void* symbol(const std::string& name) override { return dlsym(handle_, name.c_str()); }

 private:
  std::unique_ptr<ScratchDirectory> directory_;
  void* handle_;
};

std::vector<std::string> compiler_words() {
  std::istringstream words(environment(Variable::cxx).value_or("c++"));
  std::vector<std::string> split{std::istream_iterator<std::string>(words), {}};
  if (split.empty()) split.push_back("c++");  // nothing but blanks
  return split;
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Runs a program found in PATH, its output going to a file. Returns its exit status; throws
/// Error(environment) if it does not start.
int run_program(const std::vector<std::string>& words, const std::string& output) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = 0;
  const int failure = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) {
    throw Error(ErrorKind::environment, "cannot start the system C++ compiler \"" + words[0] +
                                            "\": " + std::strerror(failure) +
                                            "; install g++ or name a compiler in TILEWRIGHT_CXX");
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

SystemCompilerResult compile_with_system_compiler(const Source& source) {
  auto directory = std::make_unique<ScratchDirectory>();
  // The file ends in .cpp whatever the source calls itself: the suffix tells the compiler the language.
  const std::string stem = std::filesystem::path(source.file_name).stem().string();
  const std::string source_path = directory->write(stem + ".cpp", source.text);
  const std::string object = directory->path() + "/" + stem + ".so";
  const std::string log = directory->path() + "/compiler.log";
  std::vector<std::string> words = compiler_words();
  const std::string name = words[0];
  for (const char* option : {"-std=c++20", "-O1", "-g", "-shared", "-fPIC", "-w", "-o"}) {
    words.push_back(option);
  }
  words.push_back(object);
  words.push_back(source_path);
  if (run_program(words, log) != 0) {
    directory->keep();
    const std::string text = read_file(log);
    throw CompileError("the system C++ compiler \"" + name + "\" refused the generated source " +
                           source_path + ":\n" + text.substr(0, 2000),
                       text, join(words), source_path);
  }
  SystemCompilerResult result;
  result.compiler = "system C++ compiler (" + name + ")";
  result.command = join(words);
  result.source_path = source_path;
  result.code = std::make_unique<SharedObject>(std::move(directory), object);
  return result;
}

}  // namespace tilewright
