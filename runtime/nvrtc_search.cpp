#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "codegen/error.h"
#include "runtime/environment.h"
#include "runtime/nvrtc_library.h"
#include "runtime/own_directories.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;

constexpr const char* library_names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

std::optional<fs::path> library_in(const fs::path& directory) {
  for (const char* name : library_names)
    if (is_file(directory / name)) return directory / name;
  return std::nullopt;
}

std::string environment_text(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// Files of the shared objects that the process has loaded.
std::vector<fs::path> loaded_objects() {
  std::vector<fs::path> files;
  auto visit = [](dl_phdr_info* info, size_t, void* data) {
    if (info->dlpi_name && *info->dlpi_name)
      static_cast<std::vector<fs::path>*>(data)->push_back(info->dlpi_name);
    return 0;
  };
  dl_iterate_phdr(visit, &files);
  return files;
}

/// site-packages and dist-packages below <prefix>/lib/python3*, newest Python first.
void add_package_directories(const fs::path& prefix, std::vector<fs::path>& directories) {
  std::error_code error;
  std::vector<fs::path> pythons;
  for (fs::directory_iterator entry(prefix / "lib", error), end; !error && entry != end;
       entry.increment(error))
    if (entry->path().filename().string().starts_with("python3")) pythons.push_back(entry->path());
  std::sort(pythons.rbegin(), pythons.rend());
  for (const auto& python : pythons)
    for (const char* packages : {"site-packages", "dist-packages"}) directories.push_back(python / packages);
}

/// Where Python packages may lie: beside a torch that is loaded, the active environment, the interpreter that
/// runs this, the user's, the system's.
std::vector<fs::path> package_directories(const std::vector<fs::path>& objects) {
  std::vector<fs::path> directories;
  for (const auto& object : objects)
    if (object.filename().string().starts_with("libtorch"))
      directories.push_back(object.parent_path().parent_path().parent_path());
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (auto prefix = environment_text(name); !prefix.empty()) add_package_directories(prefix, directories);
  for (const auto& directory : own_directories())
    if (directory.filename() == "bin") add_package_directories(directory.parent_path(), directories);
  if (auto home = environment_text("HOME"); !home.empty())
    add_package_directories(fs::path(home) / ".local", directories);
  add_package_directories("/usr/local", directories);
  add_package_directories("/usr", directories);
  return directories;
}

/// Asks the loader, which knows directories that the list above does not (/etc/ld.so.conf).
std::optional<fs::path> ask_loader() {
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"}) {
    void* handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (!handle) continue;
    link_map* map = nullptr;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && *map->l_name) return map->l_name;
  }
  return std::nullopt;
}

}  // namespace

std::vector<fs::path> nvrtc_directories() {
  std::vector<fs::path> directories;
  std::stringstream loader_path(environment_text("LD_LIBRARY_PATH"));
  for (std::string directory; std::getline(loader_path, directory, ':');)
    if (!directory.empty()) directories.push_back(directory);
  for (const std::string& toolkit :
       {environment_text("CUDA_HOME"), environment_text("CUDA_PATH"), std::string("/usr/local/cuda")})
    if (!toolkit.empty())
      for (const char* below : {"lib64", "targets/x86_64-linux/lib"})
        directories.push_back(fs::path(toolkit) / below);
  for (const auto& directory : own_directories())
    for (const char* below : {"cuda/lib", "../lib/cuda/lib"}) directories.push_back(directory / below);
  for (const auto& packages : package_directories(loaded_objects()))
    for (const char* wheel : {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"})
      directories.push_back(packages / wheel);
  for (const char* system : {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"})
    directories.push_back(system);
  return directories;
}

fs::path find_nvrtc() {
  const std::string variable = name_of(Variable::nvrtc);
  if (auto named = environment(Variable::nvrtc)) {
    if (is_file(*named)) return *named;
    if (auto file = library_in(*named)) return *file;
    throw Error(ErrorKind::environment,
                variable + " is '" + *named +
                    "', which is neither a file nor a directory that holds libnvrtc.so.13, "
                    "libnvrtc.so.12 or libnvrtc.so");
  }
  for (const auto& object : loaded_objects())
    if (object.filename().string().starts_with("libnvrtc.so") && is_file(object)) return object;
  auto directories = nvrtc_directories();
  for (const auto& directory : directories)
    if (auto file = library_in(directory)) return *file;
  if (auto file = ask_loader()) return *file;

  std::string tried;
  for (const auto& directory : directories) tried += "\n  " + directory.string();
  throw Error(
      ErrorKind::environment,
      "no NVRTC: libnvrtc.so.13 and libnvrtc.so.12 are neither in the loader's path nor in" + tried +
          "\ninstall a CUDA toolkit or the Python package nvidia-cuda-nvrtc, or name the library in " +
          variable);
}

}  // namespace tilewright
