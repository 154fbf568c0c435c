#include "worker/comm/health/peer_monitor.h"

#include <algorithm>
#include <utility>

#include "common/blocked_signals.h"
#include "worker/comm/bootstrap/ready_stores.h"
#include "worker/comm/health/recent_operations.h"

namespace ddprun::comm {
namespace {

using std::chrono::milliseconds;

// A rank that missed three heartbeats is silent; on a busy machine, in no less than a second.
milliseconds window_for(milliseconds heartbeat_interval) {
  return std::max(3 * heartbeat_interval, milliseconds(1000));
}

// The interval is longer for thousands of ranks, so that they do not keep the store busy.
milliseconds pass_interval_for(int size, milliseconds heartbeat_interval) {
  return std::min(std::clamp(milliseconds(2 * size), milliseconds(50), milliseconds(2000)), heartbeat_interval);
}

// A rank that left takes no part in the collective that this rank is in. Not every transport fails then.
std::optional<Departure> departure_from_collective(int rank, const OperationLog& operation_log,
                                                   const PeerRecords& departed) {
  if (departed.empty()) return std::nullopt;
  const auto entry = operation_log.current();
  if (!entry || entry->state != OperationLog::State::started) return std::nullopt;
  return Departure{.own = stall_of(rank, *entry, OperationLog::Clock::now()), .left = departed};
}

}  // namespace

PeerMonitor::PeerMonitor(const GroupOptions& options, std::string_view backend, const OperationLog& operation_log,
                         OnFailure on_failure)
    : store_(take_or(options.ready_stores ? &options.ready_stores->monitor : nullptr, options.connect_store)),
      options_(options),
      operation_log_(operation_log),
      on_failure_(std::move(on_failure)),
      window_(window_for(heartbeat_of(options_.config))),
      pass_interval_(pass_interval_for(options_.size, heartbeat_of(options_.config))),
      records_(store_, options_.prefix, options_.size, store_timeout_of(options_)),
      publisher_(store_, records_, options_, operation_log_),
      neighbour_(records_, options_.rank, options_.config.freeze_bound, heartbeat_of(options_.config)),
      disagreement_(records_, operation_log_, options_.rank, window_),
      transfers_(records_, operation_log_, options_.rank, heartbeat_of(options_.config)),
      overdue_(records_, operation_log_, options_.rank, window_),
      store_host_{.rank = options_.store_host},
      processes_(options_.rank, [this] { store_->wake(); }) {
  publisher_.join(backend, processes_.registration(options_.config.label));
  thread_ = start_signal_free_thread([this] { run(); });
}

PeerMonitor::~PeerMonitor() {
  {
    const std::lock_guard lock(mutex_);
    requests_.stop = true;
    changed_.notify_all();
  }
  store_->wake();
  thread_.join();
}

milliseconds PeerMonitor::diagnosis_delay() const {
  return last_will_delay() + 3 * window_;
}

void PeerMonitor::all_joined(std::optional<milliseconds> linger_timeout) {
  {
    const std::lock_guard lock(mutex_);
    requests_.all_joined = true;
    requests_.linger_timeout = linger_timeout;
  }
  store_->wake();
}

void PeerMonitor::transport_failed(const OperationLog::Entry& entry, const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (!requests_.transport_failure) requests_.transport_failure = TransportFailure{entry, message, Clock::now()};
  store_->wake();
}

void PeerMonitor::publish(const GroupFailure& failure) {
  const std::lock_guard lock(mutex_);
  if (!requests_.to_publish) requests_.to_publish = failure;
  store_->wake();
}

PeerMonitor::Requests PeerMonitor::take_requests() {
  const std::lock_guard lock(mutex_);
  auto requests = requests_;
  requests_.to_publish.reset();
  return requests;
}

// A rank that serves the store may end meanwhile, and waits for the others to know it.
void PeerMonitor::wait_for_stop() {
  std::unique_lock lock(mutex_);
  const auto stopped = [this] { return requests_.stop; };
  while (options_.store_host && !store_ends_ && !changed_.wait_for(lock, pass_interval_, stopped)) {
    lock.unlock();
    ask_for_end(Deadline::in(window_));
    lock.lock();
  }
  changed_.wait(lock, stopped);
}

void PeerMonitor::run() {
  try {
    watch_group();
  } catch (const Error& error) {
    const auto failure =
        store_ends_ ? watch_without_store() : diagnose_lost_store(store_host_, options_.rank, identity(), error.what());
    if (failure) on_failure_(Error(failure->code, failure->message));
  }
}

// Throws when the store is lost.
void PeerMonitor::watch_group() {
  const auto failure = watch();
  if (failure) {
    on_failure_(Error(failure->code, failure->message));
    wait_for_stop();
  }
  if (const auto own = take_requests().to_publish) publisher_.publish(*own);
  if (failure && failure_is_published_)
    publisher_.beat(true);  // the last will says nothing more
  else
    publisher_.leave(Deadline::in(window_));
}

// Returns the group's failure, or nothing when told to stop. Throws when the store is lost.
std::optional<GroupFailure> PeerMonitor::watch() {
  while (true) {
    const auto next_pass = earlier(Deadline::in(pass_interval_), Deadline::at(neighbour_.due()));
    if (auto failure = publisher_.await_failure(next_pass)) return failure;
    const auto requests = take_requests();
    if (requests.to_publish) return publisher_.publish(*requests.to_publish);
    if (requests.stop) return std::nullopt;
    const auto facts = collect(requests, Clock::now());
    const auto failure = diagnose(facts);
    if (!failure) continue;
    const bool store_answers = !facts.overdue || !facts.overdue->store_error;
    failure_is_published_ = store_answers;
    return store_answers ? publisher_.publish(*failure) : *failure;
  }
}

// Returns what watch() returns. A failure of this rank's own reaches the others only by the transport.
std::optional<GroupFailure> PeerMonitor::watch_without_store() {
  auto requests = take_requests();
  left_.insert(neighbour_.departed().begin(), neighbour_.departed().end());
  StorelessWatch watch(options_.rank, options_.size, operation_log_, left_, requests.linger_timeout);
  while (!requests.stop) {
    if (requests.to_publish) return requests.to_publish;
    const auto now = Clock::now();
    record_ended();
    for (const int rank : ended_) watch.ended(rank, fmt::format("rank {} ({})", rank, processes_.identity(rank)), now);
    if (auto failure = watch.look(now, requests.transport_failure)) return failure;
    wait_for(pass_interval_);
    requests = take_requests();
  }
  return std::nullopt;
}

void PeerMonitor::wait_for(milliseconds time) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [this] { return requests_.stop; });
}

std::vector<int> PeerMonitor::record_ended() {
  const auto ended = processes_.take_ended();
  ended_.insert(ended.begin(), ended.end());
  return ended;
}

// Makes one pass over the probes. Other ranks' probes read this rank's record, so it is published first.
Facts PeerMonitor::collect(const Requests& requests, Clock::time_point now) {
  Facts facts{
      .rank = options_.rank, .size = options_.size, .identity = identity(), .linger_timeout = requests.linger_timeout};
  for (const int rank : record_ended())
    if (auto record = records_.read(rank)) facts.ended.emplace(rank, std::move(*record));
  const bool first_failure = requests.transport_failure && !overdue_.observing();
  const bool beats = first_failure || now >= publisher_.next_beat();
  if (beats) {
    if (!peers_known_) facts.duplicate = publisher_.find_duplicate();
    publisher_.beat();
  }
  if (requests.all_joined && !peers_known_) begin_observing_peers();
  if (peers_known_ && !store_ends_ && (beats || options_.store_host))
    ask_for_end(Deadline::in(store_timeout_of(options_)));  // often where a rank that leaves waits for it

  facts.silence = neighbour_.look(now, peers_known_);
  if (facts.silence && is_starved(*facts.silence)) facts.silence.reset();
  if (facts.silence) facts.silence->process_states = processes_.states();
  facts.collective = disagreement_.look(now, neighbour_.record(), identity());
  if (beats && peers_known_) transfers_.look(now, neighbour_.departed(), facts);
  if (auto departure = departure_from_collective(options_.rank, operation_log_, neighbour_.departed()))
    facts.departures.push_back(std::move(*departure));
  facts.overdue = overdue_.look(now, requests.transport_failure);
  return facts;
}

// A process of this host that runs is not frozen, only starved on a machine with too many. It gets more time, not all
// the time there is: its heartbeat may be stuck.
bool PeerMonitor::is_starved(const Silence& silence) const {
  const std::chrono::duration<double> bound = 10 * options_.config.freeze_bound;
  return silence.seconds < bound.count() && processes_.runs(neighbour_.watched());
}

void PeerMonitor::begin_observing_peers() {
  peers_known_ = true;
  processes_.watch(publisher_.local_registrations());
  find_store_host();
}

void PeerMonitor::ask_for_end(Deadline deadline) {
  store_ends_ = store_->end_announced(deadline);
  if (!store_ends_ || !options_.store_host) return;
  if (auto record = records_.read(*options_.store_host)) left_.emplace(*options_.store_host, std::move(*record));
}

std::string PeerMonitor::name_rank(int rank) {
  const auto record = records_.read(rank);
  return fmt::format("rank {} ({})", rank, record ? record->identity() : "unknown");
}

void PeerMonitor::find_store_host() {
  if (options_.store_host) {
    store_host_.identity = name_rank(*options_.store_host);
  } else if (!options_.beside_store) {
    if (const auto neighbour = publisher_.rank_beside_store()) store_host_.neighbour = name_rank(*neighbour);
  }
}

}  // namespace ddprun::comm
