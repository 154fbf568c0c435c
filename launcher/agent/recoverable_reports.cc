#include "launcher/agent/recoverable_reports.h"

#include <algorithm>

namespace ddprun {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds shortest_interval{50};
constexpr milliseconds longest_interval{2'000};

}  // namespace

void RecoverableReports::report() {
  const auto now = handlers_.read();
  if (!now || sent_ == now || (!sent_ && !now->able)) return;
  send(*now);
}

void RecoverableReports::report_again() {
  if (const auto now = handlers_.read()) send(*now);
}

void RecoverableReports::await_able() {
  await_able(shortest_interval);
}

void RecoverableReports::await_able(milliseconds interval) {
  report();
  const auto now = handlers_.read();
  if (!now || now->able) return;
  timer_.expires_after(interval);
  timer_.async_wait([this, interval](boost::system::error_code failure) {
    if (!failure) await_able(std::min(2 * interval, longest_interval));
  });
}

void RecoverableReports::send(const Recoverable& now) {
  sent_ = now;
  handlers_.send(now);
}

}  // namespace ddprun
