#include "worker/comm/execution/group_health.h"

#include <algorithm>

#include "worker/comm/execution/executor.h"

namespace ddprun::comm {

using std::chrono::milliseconds;

GroupHealth::GroupHealth(const GroupOptions& options, std::string_view backend)
    : monitor_(std::make_unique<PeerMonitor>(options, backend, operation_log_,
                                             [this](const Error& error) { break_with(error); })) {
  backstop_margin_ = 2 * monitor_->diagnosis_delay() + std::chrono::seconds(5);
}

void GroupHealth::attach(Transport& transport) {
  const std::lock_guard lock(mutex_);
  if (cause_) throw Error(Errc::aborted, "the group was interrupted while it formed");
  transport_ = &transport;
}

void GroupHealth::group_formed(std::vector<Executor*> executors, const TransportTraits& traits) {
  {
    const std::lock_guard lock(mutex_);
    executors_ = std::move(executors);
  }
  monitor_->all_joined(traits.linger_timeout);
}

std::optional<Error> GroupHealth::locked_cause() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

std::optional<Error> GroupHealth::await_cause(milliseconds at_most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, at_most, [this] { return cause_.has_value(); });
  return cause_;
}

std::optional<Error> GroupHealth::cause_behind(const Error& failure) {
  const bool may_be_a_death = failure.code() != Errc::usage && failure.code() != Errc::aborted;
  return await_cause(may_be_a_death ? monitor_->last_will_delay() : milliseconds(0));
}

Error GroupHealth::explain(OperationLog::Slot slot, const Operation& operation, const std::exception& failure) {
  const std::string message = failure.what();
  if (const auto* error = dynamic_cast<const Error*>(&failure); error && error->code() == Errc::mismatch) {
    break_with(*error, GroupFailure{Errc::mismatch, message});
  }
  const OperationLog::Entry unknown{
      .operation = operation, .sequence = operation_log_.sequence(), .changed = OperationLog::Clock::now()};
  auto entry = operation_log_.read(slot).value_or(unknown);
  if (const auto* differ = dynamic_cast<const CallsDiffer*>(&failure))
    entry = operation_log_.collective(differ->sequence).value_or(entry);  // it may have ended at this rank
  monitor_->transport_failed(entry, message);
  if (const auto cause = await_cause(2 * monitor_->diagnosis_delay())) return *cause;
  auto error = make_error(Errc::connection_lost, "the connection to a peer failed and nobody says why: {}", message);
  break_with(error);
  return error;
}

// Sets the cause before it publishes it, so that it does not come back as the group's failure first; publishes it
// before the transport is interrupted, so that the others need no diagnosis.
void GroupHealth::break_with(const Error& error, const std::optional<GroupFailure>& published) {
  Transport* transport = nullptr;
  std::vector<Executor*> executors;
  {
    const std::lock_guard lock(mutex_);
    if (cause_) return;
    cause_ = error;
    broken_ = true;
    transport = transport_;
    executors = executors_;
    changed_.notify_all();
  }
  if (published) monitor_->publish(*published);
  if (transport) transport->interrupt();
  for (auto* const executor : executors) executor->cancel(error);
  broken_source_.request_stop();
}

}  // namespace ddprun::comm
