#include "tests/support/thread_group.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "worker/comm/group_options.h"
#include "worker/comm/operations/call.h"
#include "worker/comm/operations/completion.h"
#include "tests/support/reference_collectives.h"

namespace ddprun::testing {
namespace {

using namespace comm;

// One rank's call of an operation.
struct Entry {
  Call call;
  std::shared_ptr<Completion> work;
};

// The state that the ranks of a group share, guarded by one lock.
class Hub {
 public:
  Hub(int size, std::chrono::milliseconds timeout) : size_(size), timeout_(timeout), next_(size), left_(size) {}

  int size() const { return size_; }
  // The hub of a subgroup: the same for all ranks that pass this name; each of them calls it once.
  std::shared_ptr<Hub> subgroup(const std::string& name, int size) {
    const std::lock_guard lock(mutex_);
    auto& [hub, ranks] = subgroups_[name];
    if (!hub) hub = std::make_shared<Hub>(size, timeout_);
    auto result = hub;
    if (++ranks == size) subgroups_.erase(name);
    return result;
  }
  void start_collective(int rank, const Entry& entry);
  void start_transfer(int rank, const Entry& entry);
  void abort(int rank, const std::string& reason);
  std::optional<Error> failure(int rank);
  void leave(int rank);
  // Fails the group, naming the missing ranks, if the deadline of a collective or of this work has passed.
  void check_deadline(const Completion* work);

 private:
  struct PendingCollective {
    Operation operation;
    std::uint64_t sequence = 0;
    Deadline deadline = Deadline::never();
    std::vector<Entry> entries;  // by rank; work is null for ranks that have not called it yet
    int first = 0;               // the rank that called it first, for messages
  };
  // A send or recv without its counterpart.
  struct PendingTransfer {
    int rank = 0;
    Entry entry;
    Deadline deadline = Deadline::never();
    const Operation& operation() const { return entry.call.operation; }
  };
  using PendingTransfers = std::list<PendingTransfer>;

  std::chrono::milliseconds timeout_of(OpOptions options) const { return options.timeout.value_or(timeout_); }
  void fail_all(const Error& error);
  std::string missing_ranks(const PendingCollective& pending) const;
  PendingTransfers::iterator find_counterpart(const PendingTransfer& transfer);
  bool has_left(int rank) const { return left_[static_cast<std::size_t>(rank)]; }
  bool can_be_matched(const PendingTransfer& transfer) const;
  void deliver(const PendingTransfer& from, const PendingTransfer& to);

  const int size_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::map<std::string, std::pair<std::shared_ptr<Hub>, int>> subgroups_;  // kept until all of their ranks have joined
  std::vector<std::uint64_t> next_;  // by rank: sequence number of its next collective
  std::vector<bool> left_;
  std::map<std::uint64_t, PendingCollective> collectives_;  // by sequence number
  PendingTransfers transfers_;                              // no two of them match
  std::optional<Error> cause_;
  std::vector<std::optional<Error>> own_cause_ = std::vector<std::optional<Error>>(static_cast<std::size_t>(size_));
};

void Hub::start_collective(int rank, const Entry& entry) {
  const auto& operation = entry.call.operation;
  const std::lock_guard lock(mutex_);
  const auto at = static_cast<std::size_t>(rank);
  const auto sequence = next_[at]++;
  for (int r = 0; r < size_ && !cause_; ++r) {
    if (has_left(r)) {
      fail_all(make_error(Errc::peer_lost, "rank {} left the group before {} #{}", r, describe(operation), sequence));
    }
  }
  if (cause_) {
    return entry.work->fail(own_cause_[at].value_or(*cause_));
  }
  const auto [found, is_new] = collectives_.try_emplace(sequence);
  auto& pending = found->second;
  if (is_new) {
    pending = {operation, sequence, deadline_after(timeout_of(entry.call.options)), std::vector<Entry>(next_.size()),
               rank};
  }
  pending.entries[at] = entry;
  if (!agree(pending.operation, operation)) {
    return fail_all(make_error(Errc::mismatch,
                               "the ranks disagree on operation #{}: rank {} calls {}, rank {} calls {}", sequence,
                               pending.first, describe(pending.operation), rank, describe(operation)));
  }
  if (std::all_of(pending.entries.begin(), pending.entries.end(), [](const Entry& e) { return e.work != nullptr; })) {
    std::vector<Call> calls;
    for (const auto& each : pending.entries) calls.push_back(each.call);
    try {
      execute_reference(calls);
    } catch (const Error& error) {
      return fail_all(error);
    }
    for (auto& each : pending.entries) each.work->complete();
    collectives_.erase(found);
  }
}

// A send matches a recv that names its rank before one from any source; a recv matches the oldest send.
Hub::PendingTransfers::iterator Hub::find_counterpart(const PendingTransfer& transfer) {
  auto found = transfers_.end();
  for (auto other = transfers_.begin(); other != transfers_.end(); ++other) {
    if (other->operation().kind == transfer.operation().kind || other->operation().tag != transfer.operation().tag)
      continue;
    const bool named = other->operation().peer == transfer.rank;
    const bool wanted = transfer.operation().peer == other->rank;
    if (named && wanted) return other;
    const bool any =
        (named && transfer.operation().peer == any_source) || (wanted && other->operation().peer == any_source);
    if (any && found == transfers_.end()) found = other;
  }
  return found;
}

bool Hub::can_be_matched(const PendingTransfer& transfer) const {
  if (transfer.operation().peer != any_source) return !has_left(transfer.operation().peer);
  for (int r = 0; r < size_; ++r) {
    if (r != transfer.rank && !has_left(r)) return true;
  }
  return false;
}

void Hub::start_transfer(int rank, const Entry& entry) {
  const std::lock_guard lock(mutex_);
  if (cause_) return entry.work->fail(own_cause_[static_cast<std::size_t>(rank)].value_or(*cause_));
  const PendingTransfer transfer{rank, entry, deadline_after(timeout_of(entry.call.options))};
  const auto counterpart = find_counterpart(transfer);
  if (counterpart != transfers_.end()) {
    const auto other = *counterpart;
    transfers_.erase(counterpart);  // first, because deliver() may fail and clear all pending transfers
    const bool sending = transfer.operation().kind == OpKind::send;
    return deliver(sending ? transfer : other, sending ? other : transfer);
  }
  transfers_.push_back(transfer);
  if (can_be_matched(transfer)) return;
  const int peer = transfer.operation().peer;
  fail_all(make_error(Errc::peer_lost, "{} left the group before {} of rank {}",
                      peer == any_source ? "every other rank" : fmt::format("rank {}", peer),
                      describe(transfer.operation()), rank));
}

void Hub::deliver(const PendingTransfer& from, const PendingTransfer& to) {
  const auto &sent = from.operation(), &expected = to.operation();
  if (sent.count != expected.count || sent.dtype != expected.dtype) {
    const auto error = make_error(Errc::mismatch, "rank {} calls {}, rank {} calls {}", from.rank, describe(sent),
                                  to.rank, describe(expected));
    for (const auto* each : {&from, &to}) each->entry.work->fail(error);
    return fail_all(error);
  }
  if (sent.count > 0) {
    std::memcpy(to.entry.call.output.data, from.entry.call.input.data, from.entry.call.input.bytes());
  }
  from.entry.work->complete();
  to.entry.work->complete(from.rank);
}

void Hub::fail_all(const Error& error) {
  if (cause_) return;
  cause_ = error;
  const auto fail = [this](int rank, const Entry& entry) {
    if (entry.work) entry.work->fail(own_cause_[static_cast<std::size_t>(rank)].value_or(*cause_));
  };
  for (auto& [sequence, pending] : collectives_) {
    for (int r = 0; r < size_; ++r) fail(r, pending.entries[static_cast<std::size_t>(r)]);
  }
  for (const auto& transfer : transfers_) fail(transfer.rank, transfer.entry);
  transfers_.clear();
  collectives_.clear();
}

void Hub::abort(int rank, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (cause_) return;
  own_cause_[static_cast<std::size_t>(rank)] = Error(Errc::aborted, reason);
  fail_all(make_error(Errc::peer_lost, "rank {} aborted the group: {}", rank, reason));
}

std::optional<Error> Hub::failure(int rank) {
  const std::lock_guard lock(mutex_);
  const auto& own = own_cause_[static_cast<std::size_t>(rank)];
  return own ? own : cause_;
}

void Hub::leave(int rank) {
  const std::lock_guard lock(mutex_);
  left_[static_cast<std::size_t>(rank)] = true;
  for (const auto& [sequence, pending] : collectives_) {
    // If the rank has called it, its buffers are gone; if it has not, the others would wait for it without end.
    return fail_all(make_error(Errc::peer_lost, "rank {} left the group while {} #{} was in progress", rank,
                               describe(pending.operation), sequence));
  }
  for (const auto& transfer : transfers_) {
    if (transfer.rank != rank && can_be_matched(transfer)) continue;
    return fail_all(make_error(Errc::peer_lost, "rank {} left the group before {} of rank {} was matched", rank,
                               describe(transfer.operation()), transfer.rank));
  }
}

std::string Hub::missing_ranks(const PendingCollective& pending) const {
  std::string names;
  for (int r = 0; r < size_; ++r) {
    if (pending.entries[static_cast<std::size_t>(r)].work) continue;
    names += (names.empty() ? "rank " : ", rank ") + std::to_string(r);
  }
  return names;
}

void Hub::check_deadline(const Completion* work) {
  const std::lock_guard lock(mutex_);
  for (const auto& [sequence, pending] : collectives_) {
    if (!pending.deadline.expired()) continue;
    return fail_all(make_error(Errc::timeout, "{} has not called {} #{} within its timeout", missing_ranks(pending),
                               describe(pending.operation), sequence));
  }
  for (const auto& transfer : transfers_) {
    if (transfer.entry.work.get() != work || !transfer.deadline.expired()) continue;
    return fail_all(make_error(Errc::timeout, "no rank has matched the {} of rank {} within its timeout",
                               describe(transfer.operation()), transfer.rank));
  }
}

// Waits in short intervals and checks the hub's deadlines between them.
class HubWork : public Work {
 public:
  HubWork(std::shared_ptr<Hub> hub, std::shared_ptr<Completion> work) : hub_(std::move(hub)), work_(std::move(work)) {}

  bool done() const override { return work_->done(); }
  std::optional<Error> error() const override { return work_->error(); }
  int source() const override { return work_->source(); }
  void wait(Deadline deadline) override {
    constexpr auto interval = std::chrono::milliseconds(20);
    while (!work_->done() && !deadline.expired()) {
      try {
        return work_->wait(earlier(deadline, Deadline::in(interval)));
      } catch (const Error&) {
        hub_->check_deadline(work_.get());
      }
    }
    work_->wait(deadline);
  }

 private:
  const std::shared_ptr<Hub> hub_;
  const std::shared_ptr<Completion> work_;
};

class ThreadGroup : public ProcessGroup {
 public:
  ThreadGroup(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  ~ThreadGroup() override { hub_->leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  std::string_view backend() const override { return "thread"; }

  WorkPtr start(const Call& call) override {
    auto work = std::make_shared<Completion>(call.operation);
    const Entry entry{call, work};
    if (call.operation.point_to_point()) {
      hub_->start_transfer(rank_, entry);
    } else {
      hub_->start_collective(rank_, entry);
    }
    return std::make_shared<HubWork>(hub_, std::move(work));
  }

  std::optional<Error> failure() const override { return hub_->failure(rank_); }
  void abort(const std::string& reason) override { hub_->abort(rank_, reason); }

  std::unique_ptr<ProcessGroup> make_subgroup(const std::vector<int>& ranks, const std::string& name) override {
    const auto position = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    return std::make_unique<ThreadGroup>(hub_->subgroup(name, static_cast<int>(ranks.size())),
                                         static_cast<int>(position));
  }

 private:
  const std::shared_ptr<Hub> hub_;
  const int rank_;
};

}  // namespace

std::vector<std::unique_ptr<ProcessGroup>> make_thread_groups(int size, std::chrono::milliseconds timeout) {
  check({.size = size, .config = {.timeout = timeout}});
  auto hub = std::make_shared<Hub>(size, timeout);
  std::vector<std::unique_ptr<ProcessGroup>> groups;
  for (int rank = 0; rank < size; ++rank) groups.push_back(std::make_unique<ThreadGroup>(hub, rank));
  return groups;
}

}  // namespace ddprun::testing
