#include "launcher/workers/blocked_workers.h"

#include <utility>

#include <boost/asio/io_context.hpp>
#include <fmt/format.h>

namespace ddprun {
namespace {

std::string text_of(pid_t process, const SleepWatch::Finding& finding) {
  const auto channel = wait_channel(process, finding.thread);
  return fmt::format(
      "its thread {} has been in uninterruptible sleep for {:.1f} s{}: a file system or a device does not answer",
      finding.thread, std::chrono::duration<double>(finding.slept).count(),
      channel.empty() ? "" : fmt::format(" (wait channel {})", channel));
}

}  // namespace

BlockedWorkers::BlockedWorkers(boost::asio::io_context& loop, std::chrono::milliseconds limit, Handlers handlers)
    : limit_(limit), handlers_(std::move(handlers)), watch_(limit), timer_(loop) {}

void BlockedWorkers::start() {
  if (limit_ == std::chrono::milliseconds(0)) return;
  watching_ = true;
  timer_.run_after(watch_.interval(), [this] {
    look();
    if (watching_) start();
  });
}

void BlockedWorkers::stop() {
  watching_ = false;
  timer_.cancel();
  watch_.clear();
}

void BlockedWorkers::look() {
  const auto now = std::chrono::steady_clock::now();
  for (const pid_t process : handlers_.running())
    if (const auto found = watch_.observe(process, thread_sleeps(process), now))
      handlers_.blocked(process, text_of(process, *found));
  handlers_.looked();
}

}  // namespace ddprun
