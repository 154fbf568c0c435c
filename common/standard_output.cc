#include "common/standard_output.h"

#include <cerrno>
#include <cstdio>

#include "common/error.h"

namespace ddprun {
namespace {

[[noreturn]] void fail(int cause) {
  throw make_error(Errc::io, "cannot write to standard output: {}", errno_text(cause != 0 ? cause : EIO));
}

}  // namespace

void write_standard_output(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) fail(errno);
  flush_standard_output();
}

void flush_standard_output() {
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) fail(errno);
}

}  // namespace ddprun
