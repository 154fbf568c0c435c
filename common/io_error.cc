#include "common/io_error.h"

#include <cerrno>

#include "common/error.h"

namespace ddprun {

void throw_io_error(const char* what, const std::filesystem::path& path) {
  throw make_error(Errc::io, "cannot {} {}: {}", what, path.string(), errno_text(errno));
}

}  // namespace ddprun
