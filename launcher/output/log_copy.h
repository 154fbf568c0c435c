#pragma once

#include <filesystem>
#include <string_view>

#include "ddprun/common/unique_fd.h"

namespace ddprun {

// An empty log file, for appending. Throws Errc::io naming it.
UniqueFd open_log(const std::filesystem::path& path);

// A file that streams are copied to. After a failed write (a full disk) it says so once and takes no more.
class LogCopy {
 public:
  explicit LogCopy(std::filesystem::path path);
  void write(std::string_view bytes);

 private:
  std::filesystem::path path_;
  UniqueFd file_;
};

}  // namespace ddprun
