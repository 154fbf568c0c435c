#include "launcher/workers/worker_input.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"

namespace ddprun {
namespace {

// Returns no descriptor where standard input is no regular file, or one that this user may not open.
UniqueFd open_file_anew() {
  struct stat status {};
  if (::fstat(STDIN_FILENO, &status) != 0 || !S_ISREG(status.st_mode)) return {};
  UniqueFd file(::open("/proc/self/fd/0", O_RDONLY | O_CLOEXEC));
  if (file) ::lseek(file.get(), ::lseek(STDIN_FILENO, 0, SEEK_CUR), SEEK_SET);
  return file;
}

}  // namespace

WorkerInput parse_worker_input(std::string_view text) {
  if (text == "0") return WorkerInput::rank_0;
  return text == "none" ? WorkerInput::none : WorkerInput::all;
}

UniqueFd open_input(WorkerInput input, int rank) {
  if (input == WorkerInput::all || (input == WorkerInput::rank_0 && rank == 0)) return open_file_anew();
  UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing) throw make_error(Errc::io, "cannot open /dev/null: {}", errno_text(errno));
  return nothing;
}

}  // namespace ddprun
