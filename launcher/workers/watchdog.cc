#include "launcher/workers/watchdog.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "common/error.h"
#include "common/log.h"
#include "common/timer.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;

// The longest time until a change of the system clock is noticed.
constexpr double longest_sleep_seconds = 10;
// The limit is well above PIPE_BUF, up to which a request is written atomically.
constexpr std::size_t longest_line = std::size_t{64} * 1024;

double seconds_since_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void make_named_pipe(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_fifo(path, ignored)) std::filesystem::remove(path, ignored);
  if (::mkfifo(path.c_str(), 0600) != 0)
    throw make_error(Errc::io, "cannot make the watchdog's pipe {}: {}", path.string(), errno_text(errno));
}

}  // namespace

struct Watchdog::Impl {
  Impl(asio::io_context& loop, std::filesystem::path pipe, Handler handler)
      : path(std::move(pipe)), on_expired(std::move(handler)), reader(loop), timer(loop) {
    make_named_pipe(path);
    // It is opened for writing too, so that there is no end of file when the last writer closes it.
    const int fd = ::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) throw make_error(Errc::io, "cannot open the watchdog's pipe {}: {}", path.string(), errno_text(errno));
    reader.assign(fd);
  }
  ~Impl() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::filesystem::path path;
  Handler on_expired;
  asio::posix::stream_descriptor reader;
  Timer timer;
  WatchdogTimers timers;
  char block[4096];
  std::string partial;

  void read();
  void take(std::string_view bytes);
  void arm();
};

void Watchdog::Impl::read() {
  reader.async_read_some(asio::buffer(block), [this](boost::system::error_code failure, std::size_t got) {
    if (failure) return;
    take({block, got});
    arm();
    read();
  });
}

void Watchdog::Impl::take(std::string_view bytes) {
  partial += bytes;
  for (auto end = partial.find('\n'); end != std::string::npos; end = partial.find('\n')) {
    try {
      timers.request(std::string_view(partial).substr(0, end));
    } catch (const Error& e) {
      log::warn("{}", e.what());
    }
    partial.erase(0, end + 1);
  }
  if (partial.size() > longest_line) partial.clear();
}

void Watchdog::Impl::arm() {
  const auto next = timers.next();
  if (!next) {
    timer.cancel();
    return;
  }
  const double wait = std::clamp(*next - seconds_since_epoch(), 0.0, longest_sleep_seconds);
  timer.run_after(std::chrono::milliseconds(static_cast<long>(wait * 1000) + 1), [this] {
    for (const auto& expired : timers.expire(seconds_since_epoch())) on_expired(expired);
    arm();
  });
}

Watchdog::Watchdog(asio::io_context& loop, std::filesystem::path pipe, Handler on_expired)
    : impl_(std::make_unique<Impl>(loop, std::move(pipe), std::move(on_expired))) {
  impl_->read();
}

Watchdog::~Watchdog() = default;

const std::filesystem::path& Watchdog::pipe() const {
  return impl_->path;
}

void Watchdog::clear() {
  impl_->timers.clear();
  impl_->arm();
}

}  // namespace ddprun
