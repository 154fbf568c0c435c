#include "rendezvous/membership/server_liveness.h"

#include <algorithm>
#include <utility>

namespace ddprun {
namespace {

using namespace std::chrono_literals;

constexpr auto longest_probe = 200ms;    // for the answer of a server that seems to be silent
constexpr auto silence_interval = 50ms;  // at which a silent server is looked at

}  // namespace

ServerLiveness::ServerLiveness(const JobPolicy& policy)
    : interval_(policy.keep_alive_interval),
      timeout_(policy.heartbeat_timeout()),
      support_bound_(policy.support_bound()),
      probe_bound_(std::min<std::chrono::milliseconds>(longest_probe, support_bound_ / 4)),
      clock_(interval_) {}

void ServerLiveness::answered() {
  if (unanswered_.empty()) return;
  known_at_ = unanswered_.front();
  unanswered_.pop_front();
}

void ServerLiveness::began(Time now) {
  answered();
  silent_ = false;
  heard(now);
}

bool ServerLiveness::heard(Time now) {
  heard_at_ = now;
  clock_.advance(now);
  last_heard_ = clock_.elapsed();
  return std::exchange(silent_, false);
}

bool ServerLiveness::is_lost(Time now) {
  clock_.advance(now);
  return clock_.reliable() && clock_.elapsed() - last_heard_ >= timeout_;
}

ServerLiveness::Duration ServerLiveness::next_beat() const {
  const Duration left = last_heard_ + timeout_ - clock_.elapsed();
  const bool last = clock_.reliable() && left < interval_;
  return last ? left : interval_;
}

std::chrono::milliseconds ServerLiveness::silence(Time now) const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(now - heard_at_);
}

ServerLiveness::Duration ServerLiveness::first_silence_check() const {
  return support_bound_ - probe_bound_;
}

ServerLiveness::SilenceCheck ServerLiveness::check_silence(Time now, bool may_have_successor, bool workers_wait) {
  const auto bound = std::max(support_bound_, workers_wait ? 0ms : timeout_ - interval_);
  auto action = Silence::none;
  if (may_have_successor && !silent_ && silence(now) >= bound - probe_bound_) {
    if (std::exchange(probed_, heard_at_) != heard_at_) return {Silence::probe, probe_bound_};
    silent_ = true;
    action = Silence::report;
  }
  const auto left = support_bound_ - probe_bound_ - silence(now);
  return {action, left > 0ms ? left : silence_interval};
}

}  // namespace ddprun
