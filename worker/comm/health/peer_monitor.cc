#include "ddprun/worker/comm/health/peer_monitor.h"

#include <algorithm>
#include <sstream>
#include <unistd.h>

#include "ddprun/common/blocked_signals.h"
#include "ddprun/common/host_port.h"
#include "ddprun/common/log.h"
#include "ddprun/worker/comm/bootstrap/group_config.h"
#include "ddprun/worker/comm/bootstrap/host_evidence.h"
#include "ddprun/worker/comm/health/recent_operations.h"
#include "ddprun/worker/comm/process_group.h"

namespace ddprun::comm {
namespace {

using std::chrono::milliseconds;

// How long a failed transport's cause may take to come from the store before this rank asks around itself: a dead
// process closes all its connections within milliseconds of each other.
constexpr milliseconds will_grace{300};

// What may still come of a rank that left where a receive from any is not told by its transport.
constexpr milliseconds last_words{2000};

// A rank that has missed three beats stands still; on a busy machine a second is the least that proves it.
milliseconds window_for(milliseconds beat) {
  return std::max(3 * beat, milliseconds(1000));
}

// Thousands of ranks look around less often, so that the store is not kept busy by it.
milliseconds slice_for(int size, milliseconds beat) {
  return std::min(std::clamp(milliseconds(2 * size), milliseconds(50), milliseconds(2000)), beat);
}

int partner_of(const Operation& operation) {
  if (!operation.point_to_point()) return -1;
  return operation.peer == any_source ? Stall::anybody : operation.peer;
}

// Of a send or recv between two ranks.
Operation counterpart_of(Operation operation, int rank) {
  operation.kind = operation.kind == OpKind::send ? OpKind::recv : OpKind::send;
  operation.peer = rank;
  return operation;
}

milliseconds since_epoch() {
  return std::chrono::duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch());
}

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

PeerMonitor::PeerMonitor(std::shared_ptr<Store> store, MonitorOptions options, const OperationLog& operation_log,
                         OnVerdict on_verdict)
    : store_(std::move(store)),
      options_(std::move(options)),
      operation_log_(operation_log),
      on_verdict_(std::move(on_verdict)),
      identity_(fmt::format("pid {} on host {}", ::getpid(), local_host_name())),
      failure_key_(options_.prefix + "failure"),
      processes_key_(options_.prefix + "processes/" + host_evidence()),
      beside_store_key_(options_.prefix + "beside store"),
      window_(window_for(options_.beat)),
      slice_(slice_for(options_.size, options_.beat)),
      records_(store_, options_.prefix, options_.size, options_.store_patience),
      neighbour_(records_, options_.rank, options_.freeze_bound, options_.beat,
                 [this](int rank) { return describe_process(rank); }) {
  announce();
  thread_ = start_signal_free_thread([this] { run(); });
}

PeerMonitor::~PeerMonitor() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  store_->wake();
  thread_.join();
}

milliseconds PeerMonitor::will_delay() {
  return will_grace;
}

milliseconds PeerMonitor::verdict_delay() const {
  return will_grace + 3 * window_;
}

void PeerMonitor::announce() {
  beat(false);
  const auto process = ProcessIdentity::own();
  store_->append(processes_key_, fmt::format("{} {} {}\n", options_.rank, process.pid, process.start_time),
                 store_deadline());
  if (options_.beside_store)
    store_->compare_set(beside_store_key_, "", std::to_string(options_.rank), store_deadline());
  try {
    store_->set_will(failure_key_, encode(loss_of(options_.rank, identity_)), store_deadline());
  } catch (const Error& error) {
    if (error.code() != Errc::unsupported) throw;
    log::debug("the store knows no wills: the loss of a rank shows only by its heartbeat");
  }
  compare_terms();  // answered: so the record before it has arrived too
}

// The first to come says what the group is to be. Who asks for something else ends it for all, before anything is
// formed, and however many have not come yet.
void PeerMonitor::compare_terms() {
  const ConfigClaim own{fmt::format("rank {} ({})", options_.rank, identity_), options_.terms};
  const auto first = store_->compare_set(options_.prefix + "terms", "", encode(own), store_deadline());
  if (const auto difference = describe_mismatch(decode_claim(first), own)) {
    const auto verdict = settle({Errc::mismatch, *difference});
    throw Error(verdict.code, verdict.message);
  }
}

void PeerMonitor::all_here(std::optional<milliseconds> linger_timeout) {
  {
    const std::lock_guard lock(mutex_);
    all_here_ = true;
    linger_timeout_ = linger_timeout;
  }
  store_->wake();
}

void PeerMonitor::transport_failed(const OperationLog::Entry& entry, const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (!failed_) failed_ = Suspect{entry, message, Clock::now()};
  store_->wake();
}

void PeerMonitor::publish(const Verdict& verdict) {
  const std::lock_guard lock(mutex_);
  if (!to_publish_) to_publish_ = verdict;
  store_->wake();
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
  if (const auto ended = examine_ended()) return settle(*ended);
  const auto now = Clock::now();
  const bool beats = now >= next_beat_;
  if (beats) {
    if (const auto double_rank = find_namesake()) return settle(*double_rank);
    beat(false);
  }
  meet_peers();
  if (const auto frozen = neighbour_.look(now, peers_known_)) return settle(*frozen);
  if (const auto mismatch = compare_with_neighbour()) return settle(*mismatch);
  if (beats) {
    if (const auto verdict = compare_with_partners()) return settle(*verdict);
    if (const auto gone = compare_with_departed()) return settle(*gone);
  }
  if (const auto gone = examine_departed()) return settle(*gone);
  if (const auto suspect = find_suspect(now)) return examine(*suspect, now);
  baseline_.reset();
  return std::nullopt;
}

std::optional<Verdict> PeerMonitor::await_failure_key() {
  try {
    store_->wait({failure_key_}, earlier(Deadline::in(slice_), Deadline::at(neighbour_.due())));
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
  operation_log_.for_each_in_progress([&](OperationLog::Place, const OperationLog::Entry& entry) {
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
          .partner = partner_of(operation),
          .operation = describe(operation),
          .counterpart = operation.point_to_point() ? describe(counterpart_of(operation, options_.rank)) : "",
          .seconds = seconds(now - suspect.entry.changed),
          .transport = suspect.failure.value_or("")};
}

std::optional<Verdict> PeerMonitor::examine(const Suspect& suspect, Clock::time_point now) {
  const auto stall = stall_of(suspect, now);
  try {
    if (!baseline_) {
      if (suspect.failure) beat(false);  // others may have the same trouble, and ask what this rank is in
      baseline_ = records_.read_all();
    }
    if (!suspect.failure && now < suspect.entry.deadline()) return std::nullopt;
    const auto latest = records_.read_all();
    if (const auto verdict = blame_leavers(stall, latest.records)) return settle(*verdict);
    if (const auto verdict = blame_disagreeing(stall, latest.records)) return settle(*verdict);
    if (suspect.failure && now < suspect.failed_at + will_grace) return std::nullopt;
    if (latest.at - baseline_->at < window_) return std::nullopt;

    return settle(diagnose(stall, observe(*baseline_, latest), seconds(latest.at - baseline_->at)));
  } catch (const Error& error) {
    if (error.code() != Errc::timeout) throw;
    return Verdict{
        Errc::connection_lost,
        fmt::format("{} did not complete within {:.1f} s, and the store does not answer: rank {} ({}) may be cut "
                    "off ({})",
                    stall.operation, stall.seconds, options_.rank, identity_, error.what())};
  }
}

// Ranks that differ in one operation wait for each other for ever, or are done with it, having met nobody: what this
// rank called of that number is known for long. Of all ranks some that were in it longer are watched by some that
// called something else.
std::optional<Verdict> PeerMonitor::compare_with_neighbour() {
  const auto& record = neighbour_.record();
  const auto number = record ? record->newest() : std::nullopt;
  const auto own = number ? operation_log_.collective(*number) : std::nullopt;
  if (!own) return std::nullopt;
  Records records(static_cast<std::size_t>(options_.size));
  records[static_cast<std::size_t>(neighbour_.watched())] = record;
  return blame_disagreeing(stall_of({*own, std::nullopt, {}}, Clock::now()), records);
}

// The two ends of a message that differ in it may wait for each other for ever, and one end for another that has left.
// One that is under way for less than a heartbeat is not yet told by the other end.
std::optional<Verdict> PeerMonitor::compare_with_partners() {
  if (!peers_known_) return std::nullopt;
  const auto now = Clock::now();
  const auto awaited = oldest_by_partner(operation_log_, now, options_.beat);
  if (awaited.empty()) return std::nullopt;
  const auto records = read_partners(awaited);
  for (const auto& entry : transfers_to_compare(operation_log_, now, options_.beat)) {
    const auto& partner = records[static_cast<std::size_t>(entry.operation.peer)];
    if (!partner) continue;
    if (auto verdict = blame_partner(stall_of({entry, std::nullopt, {}}, now), *partner)) return verdict;
  }
  for (const auto& entry : awaited)
    if (auto verdict = give_up(stall_of({entry, std::nullopt, {}}, now), records, now)) return verdict;
  return std::nullopt;
}

// The records of these messages' partners, each of another one; none of other ranks.
PeerMonitor::Records PeerMonitor::read_partners(const std::vector<OperationLog::Entry>& messages) {
  std::vector<int> partners;
  for (const auto& entry : messages) partners.push_back(entry.operation.peer);
  auto latest = records_.read_some(partners);
  Records records(static_cast<std::size_t>(options_.size));
  for (std::size_t i = 0; i < partners.size(); ++i)
    records[static_cast<std::size_t>(partners[i])] = std::move(latest[i]);
  return records;
}

// A receive from any rank in a group that all others have left. Some transports would wait for it.
std::optional<Verdict> PeerMonitor::compare_with_departed() {
  std::optional<OperationLog::Entry> receive;
  operation_log_.for_each_in_progress([&](OperationLog::Place, const OperationLog::Entry& entry) {
    if (partner_of(entry.operation) == Stall::anybody) receive = entry;
  });
  if (!receive) return std::nullopt;
  Records records(static_cast<std::size_t>(options_.size));
  for (const auto& [rank, record] : neighbour_.departed()) records[static_cast<std::size_t>(rank)] = record;
  const auto now = Clock::now();
  return give_up(stall_of({*receive, std::nullopt, {}}, now), records, now);
}

// A send or receive whose partners have left, once nothing of theirs can be on its way any more.
std::optional<Verdict> PeerMonitor::give_up(const Stall& stall, const Records& records, Clock::time_point now) {
  auto verdict = blame_leavers(stall, records);
  if (!verdict) return std::nullopt;
  const auto noticed = departures_.try_emplace(stall.partner, now).first->second;
  const auto bound = linger_timeout();
  if (!bound && stall.partner != Stall::anybody) return std::nullopt;
  if (now - noticed < bound.value_or(last_words)) return std::nullopt;
  return verdict;
}

std::optional<milliseconds> PeerMonitor::linger_timeout() {
  const std::lock_guard lock(mutex_);
  return linger_timeout_;
}

// A rank that left does not come to an operation that it has not been in. Some transports would wait for it.
std::optional<Verdict> PeerMonitor::examine_departed() const {
  const auto entry = operation_log_.current();
  if (!entry || entry->state != OperationLog::State::started) return std::nullopt;
  Records records(static_cast<std::size_t>(options_.size));
  for (const auto& [rank, record] : neighbour_.departed()) {
    if (record.sequence <= entry->sequence) records[static_cast<std::size_t>(rank)] = record;
  }
  return blame_leavers(stall_of({*entry, std::nullopt, {}}, Clock::now()), records);
}

// Who said goodbye before its process ended is no loss.
std::optional<Verdict> PeerMonitor::examine_ended() {
  std::vector<int> ended;
  {
    const std::lock_guard lock(mutex_);
    ended = std::exchange(ended_, {});
  }
  for (const int rank : ended) {
    const auto record = records_.read(rank);
    if (record && !record->left) return loss_of(rank, record->identity());
  }
  return std::nullopt;
}

// While ranks are missing: is there another process of this one's number? They overwrite each other's record, and wait
// for a rank that nobody is.
std::optional<Verdict> PeerMonitor::find_namesake() {
  if (peers_known_) return std::nullopt;
  const auto record = records_.read(options_.rank);
  if (!record || *record == last_beat_) return std::nullopt;
  return Verdict{Errc::mismatch,
                 fmt::format("two processes are rank {}: {} and {}", options_.rank, identity_, record->identity())};
}

// Once, when all ranks have come.
void PeerMonitor::meet_peers() {
  {
    const std::lock_guard lock(mutex_);
    if (!all_here_ || peers_known_) return;
  }
  peers_known_ = true;
  watch_processes();
  find_store();
}

std::string PeerMonitor::describe_rank(int rank) {
  const auto record = records_.read(rank);
  return fmt::format("rank {} ({})", rank, record ? record->identity() : "unknown");
}

void PeerMonitor::find_store() {
  if (options_.store_host) {
    store_host_ = describe_rank(*options_.store_host);
  } else if (!options_.beside_store && store_->check({beside_store_key_}, store_deadline())) {
    beside_store_ = describe_rank(std::stoi(store_->get(beside_store_key_, store_deadline())));
  }
}

// Those of this host.
void PeerMonitor::watch_processes() {
  std::vector<ProcessMonitor::Process> processes;
  std::istringstream lines(store_->get(processes_key_, store_deadline()));
  for (ProcessMonitor::Process each; lines >> each.rank >> each.identity.pid >> each.identity.start_time;) {
    if (each.rank == options_.rank) continue;
    local_peers_[each.rank] = each.identity;
    if (each.identity != ProcessIdentity::own()) processes.push_back(each);
  }
  if (processes.empty()) return;
  processes_.emplace(processes, [this](int rank) {
    const std::lock_guard lock(mutex_);
    ended_.push_back(rank);
    store_->wake();
  });
}

std::string PeerMonitor::describe_process(int rank) const {
  const auto found = local_peers_.find(rank);
  if (found == local_peers_.end()) return "";
  if (found->second.stopped()) return "its process is stopped";
  return found->second.alive() ? "its process lives, and gets no time or is cut off from the store" : "it has ended";
}

void PeerMonitor::beat(bool left) {
  RankRecord record{.beat = last_beat_.beat + 1,
                    .left = left,
                    .size = options_.size,
                    .pid = ::getpid(),
                    .time = since_epoch(),
                    .host = local_host_name(),
                    .operations = recent_operations(operation_log_, Clock::now())};
  if (const auto latest = operation_log_.current()) {
    record.inside = latest->state == OperationLog::State::started;
    record.sequence = record.inside ? latest->sequence : latest->sequence + 1;
    record.operation = describe(latest->operation);
    record.signature = signature(latest->operation);
  }
  records_.publish(options_.rank, record);
  last_beat_ = std::move(record);
  next_beat_ = Clock::now() + options_.beat;
}

// Makes verdict the group's, unless another one came first; what counts then.
Verdict PeerMonitor::settle(const Verdict& verdict) {
  return decode_verdict(store_->compare_set(failure_key_, "", encode(verdict), store_deadline()));
}

Verdict PeerMonitor::lost_store(const Error& error) const {
  if (options_.store_host && *options_.store_host != options_.rank) {
    const auto who = store_host_.empty() ? fmt::format("rank {}", *options_.store_host) : store_host_;
    return {Errc::peer_lost, fmt::format("{}, whose process serves the store, was lost: {}", who, error.what())};
  }
  if (!beside_store_.empty()) {
    return {Errc::peer_lost,
            fmt::format("{}, on whose host the store is, was lost, or rank {} ({}) is cut off from there: {}",
                        beside_store_, options_.rank, identity_, error.what())};
  }
  return {Errc::connection_lost,
          fmt::format("rank {} ({}) lost the group's store: {}", options_.rank, identity_, error.what())};
}

void PeerMonitor::say_goodbye() {
  if (const auto own = take_published()) settle(*own);
  beat(true);
  try {
    store_->clear_will(Deadline::in(window_));
  } catch (const Error& error) {
    if (error.code() != Errc::unsupported) throw;
  }
}

}  // namespace ddprun::comm
