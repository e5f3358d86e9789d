// A private temporary directory, removed with its object, at the latest when the process exits.
#pragma once

#include <string>

namespace tilewright {

class ScratchDirectory {
 public:
  /// Under TMPDIR, else /tmp; readable by its user alone. Throws Error(environment).
  ScratchDirectory();
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }
  /// Writes a file and returns its path. Throws Error(environment).
  std::string write(const std::string& name, const std::string& text) const;
  /// Lets the directory outlive the process.
  void keep();

 private:
  std::string path_;
  bool kept_ = false;
};

}  // namespace tilewright
