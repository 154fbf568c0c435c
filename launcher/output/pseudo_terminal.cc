#include "launcher/output/pseudo_terminal.h"

#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

namespace ddprun {
namespace {

bool make_raw(int fd) {
  termios modes{};
  if (::tcgetattr(fd, &modes) != 0) return false;
  ::cfmakeraw(&modes);
  return ::tcsetattr(fd, TCSANOW, &modes) == 0;
}

}  // namespace

std::optional<WindowSize> window_size(int fd) {
  if (::isatty(fd) != 1) return std::nullopt;
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return WindowSize{};
  return WindowSize{.columns = size.ws_col, .rows = size.ws_row};
}

std::optional<PseudoTerminal> PseudoTerminal::open(WindowSize size) {
  PseudoTerminal result;
  result.master = UniqueFd(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!result.master || ::unlockpt(result.master.get()) != 0) return std::nullopt;
  // It is opened through the master, not by name, which is correct also where /dev/pts is another mount.
  result.worker_end = UniqueFd(::ioctl(result.master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!result.worker_end || !make_raw(result.worker_end.get())) return std::nullopt;
  set_window_size(result.master.get(), size);
  return result;
}

void set_window_size(int master, WindowSize size) {
  const winsize wanted{.ws_row = static_cast<unsigned short>(std::max(size.rows, 1)),
                       .ws_col = static_cast<unsigned short>(std::max(size.columns, 1)),
                       .ws_xpixel = 0,
                       .ws_ypixel = 0};
  ::ioctl(master, TIOCSWINSZ, &wanted);
}

}  // namespace ddprun
