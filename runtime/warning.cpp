#include "runtime/warning.h"

#include <cstdio>
#include <mutex>
#include <set>

namespace tilewright {
namespace {

struct Warnings {
  std::mutex mutex;
  std::set<std::string> given;
  std::function<void(const std::string&)> handler;
};

// Never destroyed: kernels may be asked for while the process exits.
Warnings& warnings() {
  static auto* instance = new Warnings;
  return *instance;
}

}  // namespace

void warn_once(const std::string& text) {
  std::lock_guard lock(warnings().mutex);
  if (!warnings().given.insert(text).second) return;
  if (warnings().handler)
    warnings().handler(text);
  else
    std::fprintf(stderr, "tilewright: warning: %s\n", text.c_str());
}

void set_warning_handler(std::function<void(const std::string&)> handler) {
  std::lock_guard lock(warnings().mutex);
  warnings().given.clear();
  warnings().handler = std::move(handler);
}

}  // namespace tilewright
