#include "launcher/workers/guardian_watch.h"

#include <fcntl.h>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "common/error.h"
#include "common/log.h"
#include "common/timer.h"

namespace ddprun {
namespace {

constexpr std::chrono::seconds interval{1};
constexpr std::chrono::seconds retry_interval{30};

}  // namespace

class GuardianWatch::ProcessWatch {
 public:
  ProcessWatch(boost::asio::io_context& loop, Guardian& guardian, std::size_t index)
      : guardian_(guardian), index_(index), exit_(loop), timer_(loop) {
    watch();
  }

 private:
  void watch() {
    boost::system::error_code ignored;
    exit_.close(ignored);
    const int copy = ::fcntl(guardian_.process(index_).exit_descriptor(), F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return;  // the kernel has no pidfds
    exit_.assign(copy);
    exit_.async_wait(boost::asio::posix::descriptor_base::wait_read, [this](boost::system::error_code failure) {
      if (failure) return;
      timer_.run_at(next_, [this] { replace(); });
    });
  }

  void replace() {
    next_ = std::chrono::steady_clock::now() + interval;
    const auto old = guardian_.process(index_).pid();
    try {
      const auto signal = guardian_.restart(index_);
      log::warn("the guardian process (pid {}) has ended{}{}; started another (pid {})", old,
                signal.empty() ? "" : " by ", signal, guardian_.process(index_).pid());
      failing_ = false;
      watch();
    } catch (const Error& e) {
      if (!std::exchange(failing_, true))
        log::error(
            "the guardian process (pid {}) has ended: {}; if ddprun and its other guardian process are killed now, "
            "workers may survive",
            old, e.what());
      timer_.run_after(retry_interval, [this] { replace(); });
    }
  }

  Guardian& guardian_;
  const std::size_t index_;
  boost::asio::posix::stream_descriptor exit_;
  Timer timer_;
  std::chrono::steady_clock::time_point next_;  // earliest time of the next replacement
  bool failing_ = false;                        // the last start failed
};

GuardianWatch::GuardianWatch(boost::asio::io_context& loop, Guardian& guardian) {
  for (std::size_t index = 0; index < Guardian::count; ++index)
    watches_.push_back(std::make_unique<ProcessWatch>(loop, guardian, index));
}

GuardianWatch::~GuardianWatch() = default;

}  // namespace ddprun
