#include "ddprun/worker/comm/execution/group_health.h"

#include <algorithm>

#include "ddprun/worker/comm/bootstrap/group_config.h"
#include "ddprun/worker/comm/execution/executor.h"

namespace ddprun::comm {
namespace {

using std::chrono::milliseconds;

// The store may be silent as long as a rank may: its host may be frozen, too.
milliseconds store_timeout(const GroupOptions& options) {
  constexpr milliseconds most = std::chrono::hours(24 * 365);  // no clock overflows by it
  return std::min(options.freeze_bound.count() > 0 ? options.freeze_bound : options.timeout, most);
}

MonitorOptions monitor_options(const GroupOptions& options, std::string_view backend) {
  return {.rank = options.rank,
          .size = options.size,
          .prefix = options.prefix,
          .config = group_config(backend, options),
          .heartbeat_interval = heartbeat_of(options),
          .freeze_bound = options.freeze_bound,
          .store_timeout = store_timeout(options),
          .store_host = options.store_host,
          .beside_store = options.beside_store};
}

}  // namespace

GroupHealth::GroupHealth(const GroupOptions& options, std::string_view backend, Transport& transport)
    : transport_(transport),
      monitor_(std::make_unique<PeerMonitor>(options.connect_store(), monitor_options(options, backend), operation_log_,
                                             [this](const Error& error) { break_with(error); })) {}

void GroupHealth::all_here(Executor& executor) {
  {
    const std::lock_guard lock(mutex_);
    executor_ = &executor;
  }
  monitor_->all_joined(transport_.linger_timeout());
}

std::optional<Error> GroupHealth::cause() const {
  if (!broken_) return std::nullopt;
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
    entry =
        operation_log_.collective(differ->sequence).value_or(entry);  // it may be one that this rank was through with
  monitor_->transport_failed(entry, message);
  if (const auto cause = await_cause(2 * monitor_->diagnosis_delay())) return *cause;
  auto error = make_error(Errc::connection_lost, "the connection to a peer failed and nobody says why: {}", message);
  break_with(error);
  return error;
}

// Sets the cause before it publishes it, so that it does not come back as the group's failure first; publishes it
// before the transport fails, so that the others need no diagnosis.
void GroupHealth::break_with(const Error& error, const std::optional<GroupFailure>& published) {
  Executor* executor = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (cause_) return;
    cause_ = error;
    broken_ = true;
    executor = executor_;
    changed_.notify_all();
  }
  if (published) monitor_->publish(*published);
  transport_.interrupt();
  if (executor) executor->drop(error);
  broken_source_.request_stop();
}

// Counted first: whoever wakes up may destroy the group.
void GroupHealth::finish(Completion& work, const std::optional<Error>& error, int source) {
  --unfinished_;
  if (error) {
    work.fail(*error);
  } else {
    work.complete(source);
  }
}

}  // namespace ddprun::comm
