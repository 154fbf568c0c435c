#include "launcher/agent/store_hint.h"

#include <utility>

#include <boost/asio/io_context.hpp>
#include <fmt/format.h>

#include "common/atomic_file.h"
#include "common/error.h"

namespace ddprun {
namespace {

constexpr std::chrono::seconds interval{2};
constexpr std::chrono::minutes first_minutes{10};

bool runs_pytorch(pid_t process) {
  try {
    return read_whole_file(fmt::format("/proc/{}/maps", process)).find("/libtorch") != std::string::npos;
  } catch (const Error&) {
    return false;  // the process has ended
  }
}

}  // namespace

StoreHint::StoreHint(boost::asio::io_context& loop, Handlers handlers) : timer_(loop), handlers_(std::move(handlers)) {}

void StoreHint::start() {
  watches_.clear();
  until_ = std::chrono::steady_clock::now() + first_minutes;
  watching_ = true;
  look_later();
}

void StoreHint::stop() {
  watching_ = false;
  timer_.cancel();
}

void StoreHint::look_later() {
  timer_.run_after(interval, [this] {
    look();
    if (watching_ && std::chrono::steady_clock::now() < until_) look_later();
  });
}

void StoreHint::look() {
  const auto now = std::chrono::steady_clock::now();
  for (const auto& [rank, process] : handlers_.running()) {
    const auto in_use = [pid = process] { return sockets_in_use(pid); };
    if (!watches_[process].observe(tcp_sockets(process), in_use, now) || !runs_pytorch(process)) continue;
    stop();
    return handlers_.waits(rank, process);
  }
}

std::string store_hint_text(int rank, pid_t process, const std::string& store) {
  return fmt::format(
      "rank {} (pid {}) has been trying for {} s to connect to an address at which nobody listens. If its script opens "
      "a store of its own (init_method='tcp://...'): PyTorch before 2.15 makes every rank a client there, because "
      "ddprun serves the workers' store, at {}. Use init_method='env://', or start ddprun with --no_agent_store",
      rank, process, ConnectWatch::limit.count(), store);
}

}  // namespace ddprun
