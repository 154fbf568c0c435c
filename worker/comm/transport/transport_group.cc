#include "ddprun/worker/comm/transport/transport_group.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "ddprun/worker/comm/call/completion.h"
#include "ddprun/worker/comm/call/composed.h"
#include "ddprun/worker/comm/operation.h"
#include "ddprun/worker/comm/transport/elastic_pool.h"
#include "ddprun/worker/comm/transport/helped_work.h"
#include "ddprun/worker/comm/transport/quiet_thread.h"
#include "ddprun/worker/comm/transport/serial_queue.h"
#include "ddprun/worker/comm/watch/ledger.h"
#include "ddprun/worker/comm/watch/peer_monitor.h"

namespace ddprun::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds longest_timeout = std::chrono::hours(24 * 365);
// How often the group's thread looks for collectives that were posted and that nobody waits for.
constexpr milliseconds posted_look = milliseconds(50);

struct Job {
  Collective collective;
  std::shared_ptr<Completion> work;
  Ledger::Place place = Ledger::nowhere;  // of one that was posted
};

milliseconds heartbeat_for(const GroupOptions& options) {
  const auto bound = options.freeze_bound.count() > 0 ? options.freeze_bound / 5 : milliseconds(1000);
  return options.heartbeat.value_or(
      std::clamp(std::min(options.timeout / 10, bound), milliseconds(20), milliseconds(1000)));
}

// One that failed as it started; said where all failures are handled.
class FailedTransfer : public Transfer {
 public:
  explicit FailedTransfer(std::string message) : message_(std::move(message)) {}
  void wait(milliseconds) override { throw std::runtime_error(message_); }
  int source() const override { return -1; }

 private:
  const std::string message_;
};

// Collectives are carried out in the order of their calls, by whoever holds the turn:
//   the caller of a blocking one, when nothing is queued before it;
//   for what was posted or queued: a thread that waits for it, a later caller, or the group's own thread.
// Locks: the turn before mutex_; under mutex_ the turn is only tried.
class TransportGroup : public ProcessGroup, public Turn::Carrier {
 public:
  TransportGroup(std::shared_ptr<Transport> transport, const GroupOptions& options, MakeSibling make_sibling);
  ~TransportGroup() override;

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  std::string_view backend() const override { return transport_->backend(); }

  WorkPtr start(const Call& call) override;
  RegisteredBuffer allocate(std::size_t bytes) override { return transport_->allocate(bytes); }
  void abort(const std::string& reason) override;
  std::unique_ptr<ProcessGroup> make_subgroup(const std::vector<int>& ranks, const std::string& name) override;

 private:
  milliseconds timeout_of(OpOptions options) const {
    return std::clamp(options.timeout.value_or(options_.timeout), milliseconds(1), longest_timeout);
  }
  // The transport gives up only when the monitor should long have ended the operation.
  milliseconds backstop(milliseconds timeout) const {
    return timeout + 2 * monitor_->verdict_delay() + std::chrono::seconds(5);
  }
  void connect();
  WorkPtr submit(const Call& call);
  std::shared_ptr<Completion> make_work(const Operation& operation) const;
  bool post(Job& job);
  void finish_ready();
  WorkPtr carry_out_here(const Call& call);
  bool go_on(const Deadline& deadline) override;
  bool finish_oldest_posted(const Deadline& deadline);
  void finish_all_posted();
  WorkPtr start_transfer(const Call& call);
  void carry_out_jobs();
  std::optional<Error> carry_out(Collective& collective);
  void finish_transfer(Transfer& transfer, const Operation& operation, milliseconds timeout, Completion& work);
  Error explain(Ledger::Place place, const Operation& operation, const std::exception& failure);
  void finish(Completion& work, std::optional<Error> error = std::nullopt, int source = -1);
  void break_with(const Error& error, const std::optional<Verdict>& verdict = std::nullopt);

  const GroupOptions options_;
  const std::shared_ptr<Transport> transport_;
  const MakeSibling make_sibling_;

  std::mutex mutex_;  // guards what follows, and the order of submissions
  std::condition_variable broken_;
  std::optional<Error> cause_;
  std::atomic<bool> has_cause_ = false;  // the same, for a look without the lock
  std::deque<Job> posted_;               // begun by the transport, and not finished; nothing is queued before them
  bool finishing_posted_ = false;        // the first of them, by the holder of the turn
  std::atomic<int> any_posted_ = 0;      // their number, for a look without the lock

  const std::shared_ptr<Turn> turn_ = std::make_shared<Turn>(*this);
  std::atomic<std::uint64_t> next_sequence_ = 0;  // taken under mutex_, or with the turn when nothing is queued
  std::atomic<int> queued_ = 0;  // of the queue, those that are carried out included; grows under mutex_ alone
  Ledger ledger_;
  std::atomic<int> unfinished_ = 0;
  SerialQueue<Job> queue_;
  // Members are destroyed from the last to the first: the pool's tasks and the jobs use the monitor.
  std::unique_ptr<PeerMonitor> monitor_;
  ElasticPool transfers_;
  std::thread progress_;

  struct AbortOnStop {
    TransportGroup& group;
    void operator()() const { group.abort("the group was told to stop"); }
  };
  std::optional<std::stop_callback<AbortOnStop>> abort_on_stop_;
};

TransportGroup::TransportGroup(std::shared_ptr<Transport> transport, const GroupOptions& options,
                               MakeSibling make_sibling)
    : options_(options), transport_(std::move(transport)), make_sibling_(make_sibling) {
  monitor_ = std::make_unique<PeerMonitor>(options_.connect_store(),
                                           MonitorOptions{.rank = options_.rank,
                                                          .size = options_.size,
                                                          .prefix = options_.prefix,
                                                          .beat = heartbeat_for(options_),
                                                          .freeze_bound = options_.freeze_bound,
                                                          .store_host = options_.store_host},
                                           ledger_, [this](const Error& error) { break_with(error); });
  abort_on_stop_.emplace(options_.stop, AbortOnStop{*this});
  connect();
  monitor_->all_here();
  progress_ = start_quiet_thread([this] { carry_out_jobs(); });
}

// What fails here, a connection or a peer's memory, may be the first sign of its death: the store says more, a moment
// later.
void TransportGroup::connect() {
  std::optional<Error> failure;
  try {
    const auto store = options_.connect_store();
    transport_->connect(*store, options_.prefix, Deadline::in(std::min(options_.timeout, longest_timeout)));
    return;
  } catch (const Error& error) {
    failure = error;
  } catch (const std::exception& error) {  // a transport's own
    failure = Error(Errc::connection_lost, error.what());
  }
  const bool may_be_a_death = failure->code() != Errc::usage && failure->code() != Errc::aborted;
  {
    std::unique_lock lock(mutex_);
    broken_.wait_for(lock, may_be_a_death ? monitor_->will_delay() : milliseconds(0),
                     [this] { return cause_.has_value(); });
    if (cause_) throw Error(*cause_);
  }
  monitor_->publish({failure->code(), fmt::format("rank {} ({}): {}", rank(), monitor_->identity(), failure->what())});
  throw Error(*failure);
}

TransportGroup::~TransportGroup() {
  abort_on_stop_.reset();
  if (const int count = unfinished_; count > 0) {
    break_with(make_error(Errc::aborted, "the group was destroyed with {} operations unfinished", count),
               Verdict{Errc::peer_lost, fmt::format("rank {} ({}) left the group with {} operations unfinished", rank(),
                                                    monitor_->identity(), count)});
  }
  turn_->end();  // waits for whoever has it
  queue_.close();
  if (progress_.joinable()) progress_.join();
}

WorkPtr TransportGroup::start(const Call& call) {
  if (call.operation.point_to_point()) return start_transfer(call);
  if (call.options.blocking)
    if (auto work = carry_out_here(call)) return work;
  return submit(call);
}

WorkPtr TransportGroup::submit(const Call& call) {
  finish_ready();
  const auto timeout = timeout_of(call.options);
  std::unique_lock lock(mutex_);
  if (cause_) return failed_work(*cause_);
  ++unfinished_;
  const Collective collective{call, next_sequence_++, timeout};
  Job job{collective, make_work(call.operation)};
  auto work = job.work;
  std::unique_lock turn(turn_->mutex(), std::defer_lock);
  if (queued_ == 0 && transport_->runs_anywhere() && turn.try_lock() && post(job)) return work;
  ++queued_;
  ledger_.submit(call.operation, collective.sequence, timeout);
  queue_.push(std::move(job));
  return work;
}

std::shared_ptr<Completion> TransportGroup::make_work(const Operation& operation) const {
  if (transport_->runs_anywhere()) return std::make_shared<HelpedWork>(operation, turn_);
  return std::make_shared<Completion>(operation);
}

// Under mutex_ and with the turn: returns at once.
bool TransportGroup::post(Job& job) {
  const auto& operation = job.collective.operation;
  if (operation.empty() || !carried_out_as_it_is(job.collective, {rank(), size()})) return false;
  if (!transport_->post(job.collective)) return false;
  job.place = ledger_.begin(operation, job.collective.sequence, job.collective.timeout);
  posted_.push_back(std::move(job));
  ++any_posted_;
  return true;
}

// What can be finished without waiting.
void TransportGroup::finish_ready() {
  if (any_posted_ == 0) return;
  const std::unique_lock turn(turn_->mutex(), std::try_to_lock);
  while (turn && finish_oldest_posted(Deadline::at(Deadline::Clock::time_point::min()))) continue;
}

// A blocking call on its caller's thread, at the price of one lock: no work is made, and none is counted, as nobody may
// destroy the group meanwhile. None when others are before it, or the group is broken.
WorkPtr TransportGroup::carry_out_here(const Call& call) {
  if (!transport_->runs_anywhere()) return nullptr;
  const std::unique_lock turn(turn_->mutex(), std::try_to_lock);
  if (!turn || queued_ > 0 || has_cause_) return nullptr;
  finish_all_posted();
  Collective collective{call, next_sequence_++, timeout_of(call.options)};
  const auto error = carry_out(collective);
  return error ? failed_work(*error) : completed_work();
}

// With the turn. False when there is none, or it is not finished by the deadline.
bool TransportGroup::finish_oldest_posted(const Deadline& deadline) {
  if (any_posted_ == 0) return false;
  Job job;
  {
    const std::lock_guard lock(mutex_);
    if (posted_.empty()) return false;
    job = posted_.front();
    finishing_posted_ = true;
  }
  std::optional<Error> error;
  bool finished = false;
  try {
    finished = transport_->finish_posted(job.collective, deadline);
  } catch (const std::exception& failure) {
    error = explain(job.place, job.collective.operation, failure);
  }
  {
    const std::lock_guard lock(mutex_);
    finishing_posted_ = false;
    if (!finished && !error) error = cause_;  // whoever broke the group left this one alone
    if (!finished && !error) return false;
    posted_.pop_front();
    --any_posted_;
  }
  ledger_.end(job.place, error.has_value());
  finish(*job.work, error);
  return true;
}

void TransportGroup::finish_all_posted() {
  while (finish_oldest_posted(Deadline::never())) continue;
}

bool TransportGroup::go_on(const Deadline& deadline) {
  if (any_posted_ > 0) {
    finish_oldest_posted(deadline);
    return true;
  }
  if (deadline.when()) return false;  // once begun, one that was queued is carried out to its end
  auto job = queue_.try_pop();
  if (!job) return false;
  const auto error = carry_out(job->collective);
  --queued_;
  finish(*job->work, error);
  return true;
}

// Also looks after what was posted and nobody waits for: its deadline runs.
void TransportGroup::carry_out_jobs() {
  while (queue_.await_item(posted_look)) {
    std::unique_lock turn(turn_->mutex());
    auto job = queue_.try_pop();
    if (!job) {
      turn.unlock();
      finish_ready();
      continue;
    }
    finish_all_posted();
    const auto error = carry_out(job->collective);
    --queued_;
    turn.unlock();
    finish(*job->work, error);
  }
}

// With the turn. What it failed with, if it did. Puts the backstop in the place of the timeout.
std::optional<Error> TransportGroup::carry_out(Collective& collective) {
  const auto& operation = collective.operation;
  const auto place = ledger_.begin(operation, collective.sequence, collective.timeout);
  try {
    if (!operation.empty()) {
      collective.timeout = backstop(collective.timeout);
      carry_out_on(*transport_, collective, {rank(), size()});
    }
    ledger_.end(place);
    return std::nullopt;
  } catch (const std::exception& error) {
    auto cause = explain(place, operation, error);
    ledger_.end(place, true);
    return cause;
  }
}

WorkPtr TransportGroup::start_transfer(const Call& call) {
  const auto& operation = call.operation;
  // A send only reads its memory.
  const Span memory = operation.kind == OpKind::recv
                          ? call.output
                          : Span{const_cast<void*>(call.input.data), call.input.count, call.input.dtype};
  auto work = std::make_shared<Completion>(operation);
  const auto timeout = timeout_of(call.options);
  std::shared_ptr<Transfer> transfer;
  {
    const std::lock_guard lock(mutex_);  // so that transfers of one tag start in the order of the calls
    if (cause_) return failed_work(*cause_);
    ++unfinished_;
    const BlockedSignals blocked;
    try {
      transfer = transport_->start(operation, memory);
    } catch (const std::exception& error) {
      transfer = std::make_shared<FailedTransfer>(error.what());
    }
  }
  transfers_.run([this, transfer, operation, timeout, work] { finish_transfer(*transfer, operation, timeout, *work); });
  return work;
}

void TransportGroup::finish_transfer(Transfer& transfer, const Operation& operation, milliseconds timeout,
                                     Completion& work) {
  const auto place = ledger_.begin_transfer(operation, timeout);
  try {
    transfer.wait(backstop(timeout));
    ledger_.end(place);
    finish(work, std::nullopt, transfer.source());
  } catch (const std::exception& error) {
    const auto cause = explain(place, operation, error);
    ledger_.end(place, true);
    finish(work, cause);
  }
}

// The cause of the transport's failure, once the monitor has found it; within bounds. A mismatch explains itself.
Error TransportGroup::explain(Ledger::Place place, const Operation& operation, const std::exception& failure) {
  const std::string message = failure.what();
  if (const auto* error = dynamic_cast<const Error*>(&failure); error && error->code() == Errc::mismatch) {
    break_with(*error, Verdict{Errc::mismatch, message});
  }
  const Ledger::Entry unknown{.operation = operation, .sequence = ledger_.sequence(), .changed = Ledger::Clock::now()};
  monitor_->transport_failed(ledger_.read(place).value_or(unknown), message);
  {
    std::unique_lock lock(mutex_);
    if (broken_.wait_for(lock, 2 * monitor_->verdict_delay(), [this] { return cause_.has_value(); })) return *cause_;
  }
  auto error = make_error(Errc::connection_lost, "the connection to a peer failed and nobody says why: {}", message);
  break_with(error);
  return error;
}

// Counted first: whoever wakes up may destroy the group.
void TransportGroup::finish(Completion& work, std::optional<Error> error, int source) {
  --unfinished_;
  if (error) {
    work.fail(*error);
  } else {
    work.complete(source);
  }
}

// verdict: what this rank tells the others; none when they know already. The cause is set before they are told, lest it
// comes back as a verdict first; they are told before the transport fails, lest they have to find out why.
void TransportGroup::break_with(const Error& error, const std::optional<Verdict>& verdict) {
  std::deque<Job> pending;
  {
    const std::lock_guard lock(mutex_);
    if (cause_) return;
    cause_ = error;
    has_cause_ = true;
    broken_.notify_all();
    // The one that is being finished is left to whoever does: its memory is in use.
    while (posted_.size() > (finishing_posted_ ? 1 : 0)) {
      pending.push_front(std::move(posted_.back()));
      posted_.pop_back();
      --any_posted_;
    }
  }
  if (verdict) monitor_->publish(*verdict);
  transport_->interrupt();
  for (const auto& job : pending) ledger_.end(job.place, true);
  for (auto& job : queue_.take_all()) {
    --queued_;
    pending.push_back(std::move(job));
  }
  for (const auto& job : pending) finish(*job.work, *cause_);
}

void TransportGroup::abort(const std::string& reason) {
  break_with(Error(Errc::aborted, reason), Verdict{Errc::peer_lost, fmt::format("rank {} ({}) aborted the group: {}",
                                                                                rank(), monitor_->identity(), reason)});
}

std::unique_ptr<ProcessGroup> TransportGroup::make_subgroup(const std::vector<int>& ranks, const std::string& name) {
  if (!make_sibling_) return ProcessGroup::make_subgroup(ranks, name);
  const auto position = [&](int each) { return std::find(ranks.begin(), ranks.end(), each) - ranks.begin(); };
  auto options = options_;
  options.rank = static_cast<int>(position(rank()));
  options.size = static_cast<int>(ranks.size());
  options.prefix += "sub/" + name + "/";
  options.store_host.reset();
  if (options_.store_host && position(*options_.store_host) < options.size)
    options.store_host = static_cast<int>(position(*options_.store_host));
  return make_sibling_(options);
}

}  // namespace

std::unique_ptr<ProcessGroup> make_transport_group(std::shared_ptr<Transport> transport, const GroupOptions& options,
                                                   MakeSibling make_sibling) {
  return std::make_unique<TransportGroup>(std::move(transport), options, make_sibling);
}

}  // namespace ddprun::comm
