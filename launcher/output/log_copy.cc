#include "ddprun/launcher/output/log_copy.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include "ddprun/common/error.h"
#include "ddprun/common/log.h"

namespace ddprun {

UniqueFd open_log(const std::filesystem::path& path) {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
  if (!file) throw make_error(Errc::io, "cannot open the log file {}: {}", path.string(), errno_text(errno));
  return file;
}

LogCopy::LogCopy(std::filesystem::path path) : path_(std::move(path)), file_(open_log(path_)) {}

void LogCopy::write(std::string_view bytes) {
  while (file_ && !bytes.empty()) {
    const auto got = ::write(file_.get(), bytes.data(), bytes.size());
    if (got >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(got));
    } else if (errno != EINTR) {
      log::error("cannot write the log file {}: {}; it ends here", path_.string(), errno_text(errno));
      file_.reset();
    }
  }
}

}  // namespace ddprun
