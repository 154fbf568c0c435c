#include "ddprun/launcher/workers/guardian_watch.h"

#include <fcntl.h>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "ddprun/common/error.h"
#include "ddprun/common/log.h"

namespace ddprun {
namespace {

constexpr std::chrono::seconds interval{1};
constexpr std::chrono::seconds retry_interval{30};

}  // namespace

GuardianWatch::GuardianWatch(boost::asio::io_context& loop, Guardian& guardian)
    : guardian_(guardian), exit_(loop), timer_(loop) {
  watch();
}

void GuardianWatch::watch() {
  boost::system::error_code ignored;
  exit_.close(ignored);
  const int copy = ::fcntl(guardian_.exit_descriptor(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return;  // the kernel has no pidfds
  exit_.assign(copy);
  exit_.async_wait(boost::asio::posix::descriptor_base::wait_read, [this](boost::system::error_code failure) {
    if (failure) return;
    timer_.expires_at(next_);
    timer_.async_wait([this](boost::system::error_code cancelled) {
      if (!cancelled) replace();
    });
  });
}

void GuardianWatch::replace() {
  next_ = std::chrono::steady_clock::now() + interval;
  const auto old = guardian_.pid();
  try {
    const auto signal = guardian_.restart();
    log::warn("the guardian process (pid {}) has ended{}{}; started another (pid {})", old,
              signal.empty() ? "" : " by ", signal, guardian_.pid());
    failing_ = false;
    watch();
  } catch (const Error& e) {
    if (!std::exchange(failing_, true))
      log::error("the guardian process (pid {}) has ended: {}; if ddprun is killed now, workers may survive", old,
                 e.what());
    timer_.expires_after(retry_interval);
    timer_.async_wait([this](boost::system::error_code cancelled) {
      if (!cancelled) replace();
    });
  }
}

}  // namespace ddprun
