#include "runtime/cache.h"

#include <unistd.h>

#include <fstream>

#include "codegen/error.h"
#include "runtime/environment.h"
#include "runtime/file_lock.h"
#include "runtime/hash.h"
#include "runtime/warning.h"

namespace tilewright {
namespace {

/// One labelled field of what is hashed; the length keeps neighbouring fields apart.
void add_field(std::string& bytes, std::string_view label, std::string_view value) {
  bytes.append(label)
      .append(" ")
      .append(std::to_string(value.size()))
      .append("\n")
      .append(value)
      .append("\n");
}

std::string remedy() {
  return "; kernels are kept in memory only. Name a directory of your own in " +
         std::string(name_of(Variable::cache_directory));
}

}  // namespace

std::string KernelCache::hash_of(const std::string& bytes) const {
  std::string hash = hash_hex(bytes);
  // For people: two keys that differ can then be compared with diff.
  if (user_ && environment_flag(Variable::cache_debug)) user_->keep("hashed", hash + ".txt", bytes);
  return hash;
}

namespace {

std::string source_fields(const Source& source, const Target& target, bool as_ptx) {
  std::string bytes;
  bytes.reserve(source.text.size() + 256);
  add_field(bytes, "format", std::to_string(cache_format));
  add_field(bytes, "target", target.name);
  add_field(bytes, "image", as_ptx ? "ptx" : "machine code");
  add_field(bytes, "file", source.file_name);
  add_field(bytes, "kernel", source.kernel_name);
  add_field(bytes, "source", source.text);
  return bytes;
}

}  // namespace

std::string kernel_source_key(const Source& source, const Target& target, bool as_ptx) {
  return hash_hex(source_fields(source, target, as_ptx));
}

CacheKey KernelCache::key(const Source& source, const Target& target, bool as_ptx, Compiler* compiler) const {
  CacheKey key;
  key.source = hash_of(source_fields(source, target, as_ptx));
  if (!compiler) return key;
  std::string bytes;
  add_field(bytes, "format", std::to_string(cache_format));
  add_field(bytes, "compiler", compiler->identity());
  for (const auto& option : compiler->options(target, as_ptx)) add_field(bytes, "option", option);
  key.compiler = hash_of(bytes);
  return key;
}

KernelCache::KernelCache(const Options& options)
    : lock_seconds_(options.lock_seconds), compiling_(options.compiling) {
  for (const auto& file : options.bundles) bundles_.push_back(std::make_shared<const Bundle>(file));
  if (!options.disk) return;
  if (auto site = environment(Variable::site_cache_directory)) {
    try {
      site_ = CacheDirectory::open_read_only(*site);
    } catch (const Error& error) {
      warn_once("the site's kernel cache " + *site + " (" + name_of(Variable::site_cache_directory) + ") " +
                error.what() + "; it is not used");
    }
  }
  auto directory = options.directory ? options.directory : default_cache_directory();
  if (!directory) {
    warn_once("no place for a kernel cache: neither XDG_CACHE_HOME nor HOME is set" + remedy());
    return;
  }
  try {
    user_ = CacheDirectory::open(*directory);
  } catch (const Error& error) {
    warn_once("the kernel cache " + directory->string() + " " + error.what() + remedy());
  }
}

std::shared_ptr<const CacheEntry> KernelCache::find_in_bundles(const std::string& source_key) const {
  for (const auto& bundle : bundles_) {
    const auto place = bundle->view().find(source_key);
    if (!place) continue;
    try {
      return std::make_shared<const CacheEntry>(bundle->view().entry(*place));
    } catch (const Error& error) {
      warn_once("a kernel in the bundle " + bundle->path().string() + " is bad (" + error.what() +
                ") and is not used");
    }
  }
  return nullptr;
}

std::optional<CacheEntry> KernelCache::find_on_disk(const CacheKey& key) const {
  const bool any_compiler = key.compiler.empty();
  for (const auto* directory : {&site_, &user_})
    if (*directory)
      if (auto entry = (*directory)->find(key, any_compiler)) return entry;
  return std::nullopt;
}

void KernelCache::store(const CacheEntry& entry) const {
  if (!user_) return;
  try {
    user_->store(entry);
  } catch (const Error& error) {
    warn_once("the kernel cache " + user_->path().string() + " takes no more: " + error.what() + remedy());
  }
}

KernelCache::Shared KernelCache::make_once(const CacheKey& key, const std::function<CacheEntry()>& make,
                                           CacheResult& from) {
  std::optional<FileLock> lock;
  if (user_) {
    lock.emplace(user_->lock_of(key), std::chrono::duration<double>(lock_seconds_));
    // Another process, or another thread a moment ago, may have made it.
    if (auto entry = find_on_disk(key)) {
      from = CacheResult::disk;
      return std::make_shared<const CacheEntry>(std::move(*entry));
    }
  }
  from = CacheResult::compiled;
  auto entry = std::make_shared<const CacheEntry>(make());
  store(*entry);
  return entry;
}

KernelCache::Shared KernelCache::fetch(const CacheKey& key, const std::function<CacheEntry()>& make,
                                       CacheResult* from) {
  CacheResult result = CacheResult::disk;
  auto report = [&] {
    if (from) *from = result;
  };
  if (auto entry = find_on_disk(key)) {
    report();
    return std::make_shared<const CacheEntry>(std::move(*entry));
  }
  const std::string name = key.name();
  std::promise<Shared> promise;
  std::shared_future<Shared> others;
  {
    std::lock_guard lock(mutex_);
    if (auto found = in_flight_.find(name); found != in_flight_.end())
      others = found->second;
    else
      in_flight_.emplace(name, promise.get_future().share());
  }
  if (others.valid()) {
    Shared entry = others.get();
    result = CacheResult::memory;
    report();
    return entry;
  }
  auto finish = [&] {
    std::lock_guard lock(mutex_);
    in_flight_.erase(name);
  };
  try {
    Shared entry = make_once(key, make, result);
    promise.set_value(entry);
    finish();
    report();
    return entry;
  } catch (...) {
    promise.set_exception(std::current_exception());
    finish();
    throw;
  }
}

std::filesystem::path KernelCache::keep_failed(const Source& source) const {
  const std::string name = hash_hex(source.text).substr(0, 16) + "-" + source.file_name;
  if (user_)
    if (auto file = user_->keep("failed", name, source.text); !file.empty()) return file;
  std::string pattern = (std::filesystem::temp_directory_path() / "tilewright-XXXXXX").string();
  if (!mkdtemp(pattern.data())) return {};
  const auto file = std::filesystem::path(pattern) / source.file_name;
  std::ofstream stream(file, std::ios::binary);
  stream << source.text;
  return stream.flush() ? file : std::filesystem::path();
}

}  // namespace tilewright
