#include "ddprun/worker/comm/peer_monitor.h"

#include <algorithm>
#include <unistd.h>

#include "ddprun/common/host_port.h"
#include "ddprun/common/log.h"
#include "ddprun/worker/comm/quiet_thread.h"

namespace ddprun::comm {
namespace {

using std::chrono::milliseconds;

// How long a failed transport's cause may take to come from the store before this rank asks around itself: a dead
// process closes all its connections within milliseconds of each other.
constexpr milliseconds will_grace{300};

// A rank that has missed three beats stands still; on a busy machine a second is the least that proves it.
milliseconds window_for(milliseconds beat) {
  return std::max(3 * beat, milliseconds(1000));
}

// Thousands of ranks look around less often, so that the store is not kept busy by it.
milliseconds slice_for(int size, milliseconds beat) {
  return std::min(std::clamp(milliseconds(2 * size), milliseconds(50), milliseconds(2000)), beat);
}

std::string record_key(const std::string& prefix, int rank) {
  return prefix + "record/" + std::to_string(rank);
}

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

PeerMonitor::PeerMonitor(std::shared_ptr<Store> store, MonitorOptions options, const Ledger& ledger,
                         OnVerdict on_verdict)
    : store_(std::move(store)),
      options_(std::move(options)),
      ledger_(ledger),
      on_verdict_(std::move(on_verdict)),
      identity_(fmt::format("pid {} on host {}", ::getpid(), local_host_name())),
      failure_key_(options_.prefix + "failure"),
      window_(window_for(options_.beat)),
      slice_(slice_for(options_.size, options_.beat)) {
  announce();
  thread_ = start_quiet_thread([this] { run(); });
}

PeerMonitor::~PeerMonitor() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

milliseconds PeerMonitor::verdict_delay() const {
  return will_grace + 3 * window_;
}

void PeerMonitor::announce() {
  beat(false);
  const Verdict last_will{
      Errc::peer_lost,
      fmt::format("rank {} ({}) was lost: its process died or its connection broke", options_.rank, identity_)};
  try {
    store_->set_will(failure_key_, encode(last_will), store_deadline());
  } catch (const Error& error) {
    if (error.code() != Errc::unsupported) throw;
    log::debug("the store knows no wills: the loss of a rank shows only by its heartbeat");
  }
  store_->check({failure_key_}, store_deadline());  // answered: so the record before it has arrived too
}

void PeerMonitor::transport_failed(const Ledger::Entry& entry, const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (!failed_) failed_ = Suspect{entry, message, Clock::now()};
}

void PeerMonitor::publish(const Verdict& verdict) {
  const std::lock_guard lock(mutex_);
  if (!to_publish_) to_publish_ = verdict;
}

bool PeerMonitor::stopping() {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

std::optional<Verdict> PeerMonitor::take_published() {
  const std::lock_guard lock(mutex_);
  return std::exchange(to_publish_, std::nullopt);
}

void PeerMonitor::run() {
  try {
    watch();
    say_goodbye();
  } catch (const Error& error) {
    const auto verdict = lost_store(error);
    on_verdict_(Error(verdict.code, verdict.message));
  }
}

// Until told to stop; once there is a verdict, there is nothing more to watch.
void PeerMonitor::watch() {
  while (!stopping()) {
    const auto verdict = next_verdict();
    if (!verdict) continue;
    on_verdict_(Error(verdict->code, verdict->message));
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopping_; });
    return;
  }
}

// One look around; takes a slice of time. Throws when the store is lost.
std::optional<Verdict> PeerMonitor::next_verdict() {
  if (auto verdict = await_failure_key()) return verdict;
  if (const auto own = take_published()) return settle(*own);
  const auto now = Clock::now();
  if (now >= next_beat_) beat(false);
  if (const auto suspect = find_suspect(now)) return examine(*suspect, now);
  baseline_.reset();
  return std::nullopt;
}

std::optional<Verdict> PeerMonitor::await_failure_key() {
  try {
    store_->wait({failure_key_}, Deadline::in(slice_));
  } catch (const Error& error) {
    if (error.code() == Errc::timeout) return std::nullopt;
    throw;
  }
  return decode_verdict(store_->get(failure_key_, store_deadline()));
}

// The operation to worry about: one whose transport failed, or else the one that is nearest to its deadline, from one
// window before it on.
std::optional<PeerMonitor::Suspect> PeerMonitor::find_suspect(Clock::time_point now) {
  {
    const std::lock_guard lock(mutex_);
    if (failed_) return failed_;
  }
  std::optional<Suspect> suspect;
  ledger_.for_each_in_progress([&](Ledger::Place, const Ledger::Entry& entry) {
    if (now < entry.deadline() - window_) return;
    if (!suspect || entry.deadline() < suspect->entry.deadline()) suspect = Suspect{entry, std::nullopt, {}};
  });
  return suspect;
}

Stall PeerMonitor::stall_of(const Suspect& suspect, Clock::time_point now) const {
  const auto& operation = suspect.entry.operation;
  return {.rank = options_.rank,
          .sequence = suspect.entry.sequence,
          .signature = signature(operation),
          .partner = operation.point_to_point() ? operation.peer : -1,
          .operation = describe(operation),
          .seconds = seconds(now - suspect.entry.changed),
          .transport = suspect.failure.value_or("")};
}

std::optional<Verdict> PeerMonitor::examine(const Suspect& suspect, Clock::time_point now) {
  const auto stall = stall_of(suspect, now);
  try {
    if (!baseline_) baseline_ = read_records();
    if (!suspect.failure && now < suspect.entry.deadline()) return std::nullopt;
    const auto latest = read_records();
    if (const auto verdict = blame_leavers(stall, latest.records)) return settle(*verdict);
    if (suspect.failure && now < suspect.failed_at + will_grace) return std::nullopt;
    if (latest.at - baseline_->at < window_) return std::nullopt;

    std::vector<Observation> observations;
    for (std::size_t r = 0; r < latest.records.size(); ++r) {
      observations.push_back({baseline_->records[r], latest.records[r]});
    }
    return settle(diagnose(stall, observations, seconds(latest.at - baseline_->at)));
  } catch (const Error& error) {
    if (error.code() != Errc::timeout) throw;
    return Verdict{
        Errc::connection_lost,
        fmt::format("{} did not complete within {:.1f} s, and the store does not answer: rank {} ({}) may be cut "
                    "off ({})",
                    stall.operation, stall.seconds, options_.rank, identity_, error.what())};
  }
}

PeerMonitor::Reading PeerMonitor::read_records() {
  std::vector<std::string> keys;
  for (int r = 0; r < options_.size; ++r) keys.push_back(record_key(options_.prefix, r));
  Reading reading;
  for (const auto& text : store_->multi_get(keys, store_deadline())) reading.records.push_back(decode_record(text));
  reading.at = Clock::now();
  return reading;
}

void PeerMonitor::beat(bool left) {
  PeerRecord record{.beat = ++beats_, .left = left, .identity = identity_};
  if (const auto latest = ledger_.latest()) {
    record.inside = latest->state == Ledger::State::started;
    record.sequence = record.inside ? latest->sequence : latest->sequence + 1;
    record.operation = describe(latest->operation);
    if (record.inside) record.signature = signature(latest->operation);
  }
  store_->set(record_key(options_.prefix, options_.rank), encode(record), store_deadline());
  next_beat_ = Clock::now() + options_.beat;
}

// Makes verdict the group's, unless another one came first; what counts then.
Verdict PeerMonitor::settle(const Verdict& verdict) {
  return decode_verdict(store_->compare_set(failure_key_, "", encode(verdict), store_deadline()));
}

Verdict PeerMonitor::lost_store(const Error& error) const {
  if (options_.store_host && *options_.store_host != options_.rank) {
    return {Errc::peer_lost,
            fmt::format("rank {}, whose process serves the store, was lost: {}", *options_.store_host, error.what())};
  }
  return {Errc::connection_lost, fmt::format("the group lost its store: {}", error.what())};
}

void PeerMonitor::say_goodbye() {
  if (const auto own = take_published()) settle(*own);
  beat(true);
  try {
    store_->clear_will(store_deadline());
  } catch (const Error& error) {
    if (error.code() != Errc::unsupported) throw;
  }
}

}  // namespace ddprun::comm
