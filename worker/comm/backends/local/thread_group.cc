#include "ddprun/worker/comm/backends/local/thread_group.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "ddprun/worker/comm/backends/local/plain_collectives.h"
#include "ddprun/worker/comm/group_options.h"
#include "ddprun/worker/comm/operations/call.h"
#include "ddprun/worker/comm/operations/completion.h"

namespace ddprun::comm {
namespace {

// One rank's part in an operation.
struct Entry {
  Call call;
  std::shared_ptr<Completion> work;
};

// Where the ranks meet. One lock; everything below is guarded by it.
class Hub {
 public:
  Hub(int size, std::chrono::milliseconds timeout) : size_(size), timeout_(timeout), next_(size), left_(size) {}

  int size() const { return size_; }
  // The hub of some of the ranks, the same for all that give this name; each of them takes it once.
  std::shared_ptr<Hub> subgroup(const std::string& name, int size) {
    const std::lock_guard lock(mutex_);
    auto& [hub, takers] = subgroups_[name];
    if (!hub) hub = std::make_shared<Hub>(size, timeout_);
    auto result = hub;
    if (++takers == size) subgroups_.erase(name);
    return result;
  }
  // Of a collective, and of a send or recv.
  void enter(int rank, const Entry& entry);
  void post(int rank, const Entry& entry);
  void abort(int rank, const std::string& reason);
  std::optional<Error> failure(int rank);
  void leave(int rank);
  // Breaks the hub if work's deadline has passed and it is still pending, naming who has not come.
  void check_deadline(const Completion* work);

 private:
  struct Meeting {
    Operation operation;
    std::uint64_t sequence = 0;
    Deadline deadline = Deadline::never();
    std::vector<Entry> entries;  // by rank; without work: not there yet
    int first = 0;               // who came first, for messages
  };
  // A send or recv that waits for its counterpart.
  struct Parcel {
    int rank = 0;
    Entry entry;
    Deadline deadline = Deadline::never();
    const Operation& operation() const { return entry.call.operation; }
  };
  using Parcels = std::list<Parcel>;

  std::chrono::milliseconds timeout_of(OpOptions options) const { return options.timeout.value_or(timeout_); }
  void fail_all(const Error& error);
  std::string missing_ranks(const Meeting& meeting) const;
  Parcels::iterator find_counterpart(const Parcel& parcel);
  bool has_left(int rank) const { return left_[static_cast<std::size_t>(rank)]; }
  bool can_be_answered(const Parcel& parcel) const;
  void deliver(const Parcel& from, const Parcel& to);

  const int size_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::map<std::string, std::pair<std::shared_ptr<Hub>, int>> subgroups_;  // not yet taken by all of its ranks
  std::vector<std::uint64_t> next_;  // by rank: sequence number of its next collective
  std::vector<bool> left_;
  std::map<std::uint64_t, Meeting> meetings_;
  Parcels parcels_;  // none of them fits another
  std::optional<Error> cause_;
  std::vector<std::optional<Error>> own_cause_ = std::vector<std::optional<Error>>(static_cast<std::size_t>(size_));
};

void Hub::enter(int rank, const Entry& entry) {
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
  const auto [place, fresh] = meetings_.try_emplace(sequence);
  auto& meeting = place->second;
  if (fresh) {
    meeting = {operation, sequence, deadline_after(timeout_of(entry.call.options)), std::vector<Entry>(next_.size()),
               rank};
  }
  meeting.entries[at] = entry;
  if (!agree(meeting.operation, operation)) {
    return fail_all(make_error(Errc::mismatch,
                               "the ranks disagree on operation #{}: rank {} calls {}, rank {} calls {}", sequence,
                               meeting.first, describe(meeting.operation), rank, describe(operation)));
  }
  if (std::all_of(meeting.entries.begin(), meeting.entries.end(), [](const Entry& e) { return e.work != nullptr; })) {
    std::vector<Call> calls;
    for (const auto& each : meeting.entries) calls.push_back(each.call);
    try {
      carry_out_plainly(calls);
    } catch (const Error& error) {
      return fail_all(error);
    }
    for (auto& each : meeting.entries) each.work->complete();
    meetings_.erase(place);
  }
}

// A send goes to a recv from its rank before one from any; a recv takes what was sent first.
Hub::Parcels::iterator Hub::find_counterpart(const Parcel& parcel) {
  auto found = parcels_.end();
  for (auto other = parcels_.begin(); other != parcels_.end(); ++other) {
    if (other->operation().kind == parcel.operation().kind || other->operation().tag != parcel.operation().tag)
      continue;
    const bool named = other->operation().peer == parcel.rank;
    const bool wanted = parcel.operation().peer == other->rank;
    if (named && wanted) return other;
    const bool any =
        (named && parcel.operation().peer == any_source) || (wanted && other->operation().peer == any_source);
    if (any && found == parcels_.end()) found = other;
  }
  return found;
}

bool Hub::can_be_answered(const Parcel& parcel) const {
  if (parcel.operation().peer != any_source) return !has_left(parcel.operation().peer);
  for (int r = 0; r < size_; ++r) {
    if (r != parcel.rank && !has_left(r)) return true;
  }
  return false;
}

void Hub::post(int rank, const Entry& entry) {
  const std::lock_guard lock(mutex_);
  if (cause_) return entry.work->fail(own_cause_[static_cast<std::size_t>(rank)].value_or(*cause_));
  const Parcel parcel{rank, entry, deadline_after(timeout_of(entry.call.options))};
  const auto counterpart = find_counterpart(parcel);
  if (counterpart != parcels_.end()) {
    const auto other = *counterpart;
    parcels_.erase(counterpart);  // first: should the two differ, all that waits is dropped
    const bool sending = parcel.operation().kind == OpKind::send;
    return deliver(sending ? parcel : other, sending ? other : parcel);
  }
  parcels_.push_back(parcel);
  if (can_be_answered(parcel)) return;
  const int peer = parcel.operation().peer;
  fail_all(make_error(Errc::peer_lost, "{} left the group before {} of rank {}",
                      peer == any_source ? "every other rank" : fmt::format("rank {}", peer),
                      describe(parcel.operation()), rank));
}

void Hub::deliver(const Parcel& from, const Parcel& to) {
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
  for (auto& [sequence, meeting] : meetings_) {
    for (int r = 0; r < size_; ++r) fail(r, meeting.entries[static_cast<std::size_t>(r)]);
  }
  for (const auto& parcel : parcels_) fail(parcel.rank, parcel.entry);
  parcels_.clear();
  meetings_.clear();
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
  for (const auto& [sequence, meeting] : meetings_) {
    // It takes its buffers with it, if it had entered; and if it had not, the others would wait for ever.
    return fail_all(make_error(Errc::peer_lost, "rank {} left the group while {} #{} was in progress", rank,
                               describe(meeting.operation), sequence));
  }
  for (const auto& parcel : parcels_) {
    if (parcel.rank != rank && can_be_answered(parcel)) continue;
    return fail_all(make_error(Errc::peer_lost, "rank {} left the group before {} of rank {} was matched", rank,
                               describe(parcel.operation()), parcel.rank));
  }
}

std::string Hub::missing_ranks(const Meeting& meeting) const {
  std::string names;
  for (int r = 0; r < size_; ++r) {
    if (meeting.entries[static_cast<std::size_t>(r)].work) continue;
    names += (names.empty() ? "rank " : ", rank ") + std::to_string(r);
  }
  return names;
}

void Hub::check_deadline(const Completion* work) {
  const std::lock_guard lock(mutex_);
  for (const auto& [sequence, meeting] : meetings_) {
    if (!meeting.deadline.expired()) continue;
    return fail_all(make_error(Errc::timeout, "{} has not entered {} #{} within its timeout", missing_ranks(meeting),
                               describe(meeting.operation), sequence));
  }
  for (const auto& parcel : parcels_) {
    if (parcel.entry.work.get() != work || !parcel.deadline.expired()) continue;
    return fail_all(make_error(Errc::timeout, "nobody has answered the {} of rank {} within its timeout",
                               describe(parcel.operation()), parcel.rank));
  }
}

// Waits in the shares between which deadlines of the hub are looked at.
class HubWork : public Work {
 public:
  HubWork(std::shared_ptr<Hub> hub, std::shared_ptr<Completion> work) : hub_(std::move(hub)), work_(std::move(work)) {}

  bool done() const override { return work_->done(); }
  std::optional<Error> error() const override { return work_->error(); }
  int source() const override { return work_->source(); }
  void wait(Deadline deadline) override {
    constexpr auto share = std::chrono::milliseconds(20);
    while (!work_->done() && !deadline.expired()) {
      try {
        return work_->wait(earlier(deadline, Deadline::in(share)));
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
      hub_->post(rank_, entry);
    } else {
      hub_->enter(rank_, entry);
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

}  // namespace ddprun::comm
