#include "launcher/agent/recoverable_reports.h"

namespace ddprun {

void RecoverableReports::report() {
  const auto now = handlers_.read();
  if (!now || sent_ == now || (!sent_ && !now->able)) return;
  send(*now);
}

void RecoverableReports::report_again() {
  if (const auto now = handlers_.read()) send(*now);
}

void RecoverableReports::send(const Recoverable& now) {
  sent_ = now;
  handlers_.send(now);
}

}  // namespace ddprun
