#include "common/pipe.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <unistd.h>

#include "common/error.h"

namespace ddprun {

Pipe make_pipe(std::string_view what) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw make_error(Errc::io, "cannot make {}: {}", what, errno_text(errno));
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

void catch_sigpipe() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGPIPE, &action, nullptr);
}

}  // namespace ddprun
