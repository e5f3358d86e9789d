// tilewright doctor: what of the machine Tilewright can use, and why not of the rest.
#include <fmt/format.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/output.h"
#include "codegen/error.h"
#include "runtime/cache_directory.h"
#include "runtime/driver.h"
#include "runtime/environment.h"
#include "runtime/llvm_plugin.h"
#include "runtime/nvrtc_library.h"

namespace tilewright::cli {
namespace {

struct Part {
  std::string name;
  bool usable;
  std::string text;  // what it is, or why it cannot be used
};

/// What `find` says, or the message of its error.
template <typename Find>
Part part(const std::string& name, Find find) {
  try {
    return {name, true, find()};
  } catch (const Error& error) {
    return {name, false, error.what()};
  }
}

std::string describe_device(const Driver& driver, int ordinal, bool& usable) {
  CUdevice device = 0;
  char name[256] = "";
  int major = 0, minor = 0;
  check(driver.device_get(&device, ordinal), "get a device");
  check(driver.device_name(name, sizeof name, device), "get a device's name");
  check(driver.device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device),
        "get an attribute");
  check(driver.device_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device),
        "get an attribute");
  TargetChoice choice = target_for_device(major, minor);
  usable = choice.target != nullptr;
  std::string target = usable && !choice.as_ptx ? std::string(choice.target->name) : choice.reason;
  return fmt::format("{}, compute capability {}.{}: {}", name, major, minor, target);
}

std::vector<Part> devices(const Driver& driver) {
  std::vector<Part> parts;
  int count = 0;
  driver.device_count(&count);
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    bool usable = false;
    Part found =
        part(fmt::format("GPU {}", ordinal), [&] { return describe_device(driver, ordinal, usable); });
    found.usable = found.usable && usable;
    parts.push_back(std::move(found));
  }
  if (count == 0) parts.push_back({"GPU", false, "the driver finds none"});
  return parts;
}

std::string describe_nvrtc() {
  NvrtcLibrary library = load_nvrtc(find_nvrtc());
  int newest = library.known_architectures.empty() ? 0 : library.known_architectures.back();
  return fmt::format("{}, {}, up to sm_{}", library.version_text(), library.file.string(), newest);
}

std::string describe_plugin() {
  std::string why;
  LlvmPlugin* plugin = llvm_plugin(&why);
  if (!plugin) throw Error(ErrorKind::environment, why);
  return "clang " + plugin->version();
}

/// The program that the simulator's system mode starts, looked up as the shell would.
std::string describe_system_compiler() {
  std::string program;
  std::istringstream(environment(Variable::cxx).value_or("c++")) >> program;
  const char* path = std::getenv("PATH");
  std::istringstream directories(program.find('/') == program.npos && path ? path : "");
  if (program.find('/') != program.npos && access(program.c_str(), X_OK) == 0) return program;
  for (std::string directory; std::getline(directories, directory, ':');) {
    std::string file = (std::filesystem::path(directory) / program).string();
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  throw Error(ErrorKind::environment,
              "no program " + program + "; install g++, or set " + name_of(Variable::cxx));
}

std::string describe_cache() {
  std::optional<std::filesystem::path> path = default_cache_directory();
  if (!path) {
    throw Error(ErrorKind::environment,
                "none of TILEWRIGHT_CACHE_DIR, XDG_CACHE_HOME and HOME is set; kernels are "
                "compiled again by every process");
  }
  std::error_code error;
  if (!std::filesystem::exists(*path, error)) return path->string() + ", not there yet";
  size_t good = 0, bad = 0;
  for (const auto& listing : CacheDirectory::open_read_only(*path).list()) ++(listing.entry ? good : bad);
  return fmt::format("{}, {} good entries, {} bad", path->string(), good, bad);
}

struct Diagnosis {
  std::vector<Part> parts;
  bool gpu = false;        // kernels can be compiled for a GPU here and run
  bool simulator = false;  // kernels can run on the simulator
};

Diagnosis diagnose() {
  Diagnosis diagnosis;
  std::vector<Part>& parts = diagnosis.parts;
  auto add = [&](Part added) {
    parts.push_back(std::move(added));
    return parts.back().usable;
  };
  bool device = false;
  if (add(part("driver",
               [] { return fmt::format("CUDA {}, {}", driver_version_text(driver()), driver().path); }))) {
    for (Part& found : devices(driver())) device = add(std::move(found)) || device;
  }
  diagnosis.gpu = add(part("NVRTC", describe_nvrtc)) && device;
  bool plugin = add(part("LLVM", describe_plugin));
  bool system = add(part("C++", describe_system_compiler));
  diagnosis.simulator = plugin || system;
  add(part("cache", describe_cache));
  return diagnosis;
}

std::string conclusion(const Diagnosis& diagnosis) {
  if (diagnosis.gpu && diagnosis.simulator) return "kernels can run on the GPU and on the simulator";
  if (diagnosis.gpu)
    return "kernels can run on the GPU, not on the simulator (it needs the LLVM plugin or a C++ compiler)";
  if (diagnosis.simulator) return "kernels can run on the simulator, not on a GPU";
  return "nothing here can run kernels: the GPU needs a driver and NVRTC, the simulator the LLVM plugin or a "
         "C++ compiler";
}

void print_text(const Diagnosis& diagnosis) {
  for (const Part& part : diagnosis.parts) {
    print_field(part.name, part.usable ? part.text : "not usable: " + part.text);
  }
  fmt::print("\nEnvironment:\n");
  Table table({"  variable", "value", "meaning"});
  for (const EnvironmentVariable& variable : environment_variables()) {
    std::string value = environment(variable.variable).value_or(std::string("not set: ") + variable.fallback);
    table.add({std::string("  ") + variable.name, value, variable.meaning});
  }
  table.print();
  fmt::print("\n{}\n", conclusion(diagnosis));
}

Json as_json(const Diagnosis& diagnosis) {
  Json json = {
      {"gpu", diagnosis.gpu}, {"simulator", diagnosis.simulator}, {"conclusion", conclusion(diagnosis)}};
  json["parts"] = Json::array();
  for (const Part& part : diagnosis.parts) {
    json["parts"].push_back({{"name", part.name}, {"usable", part.usable}, {"text", part.text}});
  }
  json["environment"] = Json::array();
  for (const EnvironmentVariable& variable : environment_variables()) {
    std::optional<std::string> value = environment(variable.variable);
    json["environment"].push_back({{"name", variable.name},
                                   {"value", value ? Json(*value) : Json(nullptr)},
                                   {"fallback", variable.fallback},
                                   {"meaning", variable.meaning}});
  }
  return json;
}

}  // namespace

Command add_doctor(CLI::App& root) {
  CLI::App* app = root.add_subcommand("doctor", "Say what of this machine can be used, and why not the rest");
  auto json = std::make_shared<bool>(false);
  app->add_flag("--json", *json, "Print JSON");
  app->footer("Exit code 3 if nothing here can run kernels.");
  return {app, [json] {
            Diagnosis diagnosis = diagnose();
            if (*json) {
              print_json(as_json(diagnosis));
            } else {
              print_text(diagnosis);
            }
            return diagnosis.gpu || diagnosis.simulator ? exit_ok : exit_environment;
          }};
}

}  // namespace tilewright::cli
