#pragma once

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>

namespace ddprun::testing {

// A new, empty folder. The destructor removes it with its content.
class TempDir {
 public:
  // Removes the folders of this process, for one that ends without destructors.
  static void remove_all() {
    const std::lock_guard lock(live().mutex);
    for (const auto& path : live().paths) remove(path);
    live().paths.clear();
  }

  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ddprun-test-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp failed for " + pattern);
    path_ = pattern;
    const std::lock_guard lock(live().mutex);
    live().paths.insert(path_);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    remove(path_);
    const std::lock_guard lock(live().mutex);
    live().paths.erase(path_);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  struct Live {
    std::mutex mutex;
    std::set<std::filesystem::path> paths;
  };
  static Live& live() {
    static Live folders;
    return folders;
  }
  static void remove(const std::filesystem::path& path) {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }

  std::filesystem::path path_;
};

}  // namespace ddprun::testing
