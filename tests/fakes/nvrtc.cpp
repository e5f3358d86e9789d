// An NVRTC that compiles nothing, for the tests of everything around it. The environment tells it how to
// behave:
//   FAKE_NVRTC_VERSION=12.4          what it says it is
//   FAKE_NVRTC_ARCHITECTURES=80,90   what it knows
//   FAKE_NVRTC_FAIL=builtins|source  how compiles fail
//   FAKE_NVRTC_REFUSES=TEXT          sources that hold this text fail
//   FAKE_NVRTC_LOG=FILE              the log of a compile
//   FAKE_NVRTC_SLEEP=SECONDS         how long a compile takes
//   FAKE_NVRTC_COUNT=FILE            gets a line for each compile
// The image is "image of <options>".
#include <fcntl.h>
#include <nvrtc.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::string setting(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value ? value : fallback;
}

std::vector<int> architectures() {
  std::vector<int> numbers;
  std::stringstream list(setting("FAKE_NVRTC_ARCHITECTURES", "75,80,86,87,89,90"));
  for (std::string item; std::getline(list, item, ',');) numbers.push_back(std::atoi(item.c_str()));
  return numbers;
}

nvrtcResult copy_out(const std::string& text, char* destination) {
  std::memcpy(destination, text.c_str(), text.size() + 1);
  return NVRTC_SUCCESS;
}

}  // namespace

struct _nvrtcProgram {
  std::string source, log, image;
};

extern "C" {

__attribute__((visibility("default"))) const char* nvrtcGetErrorString(nvrtcResult result) {
  return result == NVRTC_ERROR_BUILTIN_OPERATION_FAILURE ? "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE"
                                                         : "NVRTC_ERROR_COMPILATION";
}

__attribute__((visibility("default"))) nvrtcResult nvrtcVersion(int* major, int* minor) {
  std::sscanf(setting("FAKE_NVRTC_VERSION", "12.4").c_str(), "%d.%d", major, minor);
  return NVRTC_SUCCESS;
}

__attribute__((visibility("default"))) nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  *count = static_cast<int>(architectures().size());
  return NVRTC_SUCCESS;
}

__attribute__((visibility("default"))) nvrtcResult nvrtcGetSupportedArchs(int* numbers) {
  for (int number : architectures()) *numbers++ = number;
  return NVRTC_SUCCESS;
}

__attribute__((visibility("default"))) nvrtcResult nvrtcCreateProgram(nvrtcProgram* program,
                                                                      const char* source, const char*, int,
                                                                      const char* const*,
                                                                      const char* const*) {
  *program = new _nvrtcProgram{source, "", ""};
  return NVRTC_SUCCESS;
}

__attribute__((visibility("default"))) nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete *program;
  return NVRTC_SUCCESS;
}

__attribute__((visibility("default"))) nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count,
                                                                       const char* const* options) {
  if (auto file = setting("FAKE_NVRTC_COUNT", ""); !file.empty()) {
    int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (write(descriptor, "compile\n", 8) != 8) std::abort();
    close(descriptor);
  }
  usleep(static_cast<useconds_t>(1e6 * std::atof(setting("FAKE_NVRTC_SLEEP", "0").c_str())));
  const std::string fail = setting("FAKE_NVRTC_FAIL", "");
  if (fail == "builtins") {
    program->log = "nvrtc: error: failed to open libnvrtc-builtins.so.12.4.\n";
    return NVRTC_ERROR_BUILTIN_OPERATION_FAILURE;
  }
  const std::string refused = setting("FAKE_NVRTC_REFUSES", "");
  if (fail == "source" || (!refused.empty() && program->source.find(refused) != std::string::npos)) {
    program->log = "attention_forward.cu(7): error: identifier \"frobnicate\" is undefined\n";
    return NVRTC_ERROR_COMPILATION;
  }
  program->image = "image of";
  for (int i = 0; i < count; ++i) program->image += std::string(" ") + options[i];
  if (auto file = setting("FAKE_NVRTC_LOG", ""); !file.empty()) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    program->log = text.str();
  }
  return NVRTC_SUCCESS;
}

__attribute__((visibility("default"))) nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program,
                                                                          size_t* size) {
  *size = program->log.size() + 1;
  return NVRTC_SUCCESS;
}
__attribute__((visibility("default"))) nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* text) {
  return copy_out(program->log, text);
}
__attribute__((visibility("default"))) nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t* size) {
  *size = program->image.size() + 1;
  return NVRTC_SUCCESS;
}
__attribute__((visibility("default"))) nvrtcResult nvrtcGetPTX(nvrtcProgram program, char* text) {
  return copy_out(program->image, text);
}
__attribute__((visibility("default"))) nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t* size) {
  *size = program->image.size();
  return NVRTC_SUCCESS;
}
__attribute__((visibility("default"))) nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* image) {
  std::memcpy(image, program->image.data(), program->image.size());
  return NVRTC_SUCCESS;
}

}  // extern "C"
