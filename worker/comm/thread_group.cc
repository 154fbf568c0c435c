#include "ddprun/worker/comm/thread_group.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "ddprun/worker/comm/completion.h"
#include "ddprun/worker/comm/operation.h"
#include "ddprun/worker/comm/reduce_kernels.h"

namespace ddprun::comm {
namespace {

// One rank's part in an operation.
struct Entry {
  ConstSpan input;
  Span output;
  double factor = 1;  // of a premultiplied sum
  std::shared_ptr<Completion> work;
};

std::byte* block(Span whole, std::size_t block_bytes, int index) {
  return static_cast<std::byte*>(whole.data) + block_bytes * static_cast<std::size_t>(index);
}
const std::byte* block(ConstSpan whole, std::size_t block_bytes, int index) {
  return static_cast<const std::byte*>(whole.data) + block_bytes * static_cast<std::size_t>(index);
}
void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memmove(to, from, bytes);
}

// Block `index` of a rank's input, as it goes into the reduction.
std::vector<std::byte> share(const Operation& operation, const Entry& entry, int index) {
  const std::size_t bytes = operation.count * size_of(operation.dtype);
  std::vector<std::byte> values(bytes);
  const auto* input = block(entry.input, bytes, index);
  if (needs_preparation(operation.op)) {
    prepare_reduction(entry.factor, {input, operation.count, operation.dtype}, values.data());
  } else {
    copy_bytes(values.data(), input, bytes);
  }
  return values;
}

// The reduction, in rank order, of block `index` of every rank's input.
std::vector<std::byte> fold(const Operation& operation, const std::vector<Entry>& entries, int index) {
  auto result = share(operation, entries[0], index);
  for (std::size_t rank = 1; rank < entries.size(); ++rank) {
    const auto values = share(operation, entries[rank], index);
    reduce(operation.op, operation.dtype, result.data(), result.data(), values.data(), operation.count);
  }
  finish_reduction(operation.op, {result.data(), operation.count, operation.dtype}, static_cast<int>(entries.size()));
  return result;
}

void carry_out(const Operation& operation, std::vector<Entry>& entries) {
  const std::size_t bytes = operation.count * size_of(operation.dtype);
  const int size = static_cast<int>(entries.size());
  switch (operation.kind) {
    case OpKind::allreduce: {
      const auto sum = fold(operation, entries, 0);
      for (auto& entry : entries) copy_bytes(entry.output.data, sum.data(), bytes);
      break;
    }
    case OpKind::reduce:
      copy_bytes(entries[static_cast<std::size_t>(operation.peer)].output.data, fold(operation, entries, 0).data(),
                 bytes);
      break;
    case OpKind::broadcast:
      for (auto& entry : entries) {
        copy_bytes(entry.output.data, entries[static_cast<std::size_t>(operation.peer)].input.data, bytes);
      }
      break;
    case OpKind::allgather:
      for (auto& entry : entries) {
        for (int r = 0; r < size; ++r) {
          copy_bytes(block(entry.output, bytes, r), entries[static_cast<std::size_t>(r)].input.data, bytes);
        }
      }
      break;
    case OpKind::reduce_scatter: {
      std::vector<std::vector<std::byte>> blocks;
      for (int r = 0; r < size; ++r) blocks.push_back(fold(operation, entries, r));
      for (int r = 0; r < size; ++r) {
        const auto at = static_cast<std::size_t>(r);
        copy_bytes(entries[at].output.data, blocks[at].data(), bytes);
      }
      break;
    }
    default:
      break;
  }
}

// Where the ranks meet. One lock; everything below is guarded by it.
class Hub {
 public:
  Hub(int size, std::chrono::milliseconds timeout) : size_(size), timeout_(timeout), next_(size), left_(size) {}

  int size() const { return size_; }
  std::shared_ptr<Completion> enter(int rank, const Operation& operation, Entry entry, OpOptions options);
  std::shared_ptr<Completion> send(int rank, const Operation& operation, Entry entry, OpOptions options);
  std::shared_ptr<Completion> recv(int rank, const Operation& operation, Entry entry, OpOptions options);
  void abort(int rank, const std::string& reason);
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
  struct Parcel {
    Operation operation;
    int rank = 0;
    Deadline deadline = Deadline::never();
    Entry entry;
  };
  using Line = std::tuple<int, int, int>;  // sender, receiver, tag

  std::chrono::milliseconds timeout_of(OpOptions options) const { return options.timeout.value_or(timeout_); }
  void fail_all(const Error& error);
  std::string missing_ranks(const Meeting& meeting) const;
  std::shared_ptr<Completion> match(std::map<Line, std::deque<Parcel>>& others, std::map<Line, std::deque<Parcel>>& own,
                                    Line line, Parcel parcel);

  const int size_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::vector<std::uint64_t> next_;  // by rank: sequence number of its next collective
  std::vector<bool> left_;
  std::map<std::uint64_t, Meeting> meetings_;
  std::map<Line, std::deque<Parcel>> sends_, recvs_;
  std::optional<Error> cause_;
  std::vector<std::optional<Error>> own_cause_ = std::vector<std::optional<Error>>(static_cast<std::size_t>(size_));
};

std::shared_ptr<Completion> Hub::enter(int rank, const Operation& operation, Entry entry, OpOptions options) {
  auto work = entry.work;
  const std::lock_guard lock(mutex_);
  const auto at = static_cast<std::size_t>(rank);
  const auto sequence = next_[at]++;
  for (int r = 0; r < size_ && !cause_; ++r) {
    if (left_[static_cast<std::size_t>(r)]) {
      fail_all(make_error(Errc::peer_lost, "rank {} left the group before {} #{}", r, describe(operation), sequence));
    }
  }
  if (cause_) {
    work->fail(own_cause_[at].value_or(*cause_));
    return work;
  }
  const auto [place, fresh] = meetings_.try_emplace(sequence);
  auto& meeting = place->second;
  if (fresh) {
    meeting = {operation, sequence, Deadline::in(timeout_of(options)), std::vector<Entry>(next_.size()), rank};
  }
  meeting.entries[at] = std::move(entry);
  if (!agree(meeting.operation, operation)) {
    fail_all(make_error(Errc::mismatch, "the ranks disagree on operation #{}: rank {} calls {}, rank {} calls {}",
                        sequence, meeting.first, describe(meeting.operation), rank, describe(operation)));
    return work;
  }
  if (std::all_of(meeting.entries.begin(), meeting.entries.end(), [](const Entry& e) { return e.work != nullptr; })) {
    carry_out(meeting.operation, meeting.entries);
    for (auto& each : meeting.entries) each.work->complete();
    meetings_.erase(place);
  }
  return work;
}

std::shared_ptr<Completion> Hub::match(std::map<Line, std::deque<Parcel>>& others,
                                       std::map<Line, std::deque<Parcel>>& own, Line line, Parcel parcel) {
  auto work = parcel.entry.work;
  const auto at = static_cast<std::size_t>(parcel.rank);
  if (!cause_ && left_[static_cast<std::size_t>(parcel.operation.peer)] && others[line].empty()) {
    fail_all(make_error(Errc::peer_lost, "rank {} left the group before {}", parcel.operation.peer,
                        describe(parcel.operation)));
  }
  if (cause_) {
    work->fail(own_cause_[at].value_or(*cause_));
    return work;
  }
  auto& waiting = others[line];
  if (waiting.empty()) {
    own[line].push_back(std::move(parcel));
    return work;
  }
  Parcel other = std::move(waiting.front());
  waiting.pop_front();
  const bool sending = parcel.operation.kind == OpKind::send;
  auto& from = sending ? parcel : other;
  auto& to = sending ? other : parcel;
  if (from.operation.count != to.operation.count || from.operation.dtype != to.operation.dtype) {
    const auto error = make_error(Errc::mismatch, "rank {} calls {}, rank {} calls {}", from.rank,
                                  describe(from.operation), to.rank, describe(to.operation));
    other.entry.work->fail(error);
    work->fail(error);
    fail_all(error);
    return work;
  }
  copy_bytes(to.entry.output.data, from.entry.input.data, from.entry.input.bytes());
  other.entry.work->complete();
  work->complete();
  return work;
}

std::shared_ptr<Completion> Hub::send(int rank, const Operation& operation, Entry entry, OpOptions options) {
  const std::lock_guard lock(mutex_);
  return match(recvs_, sends_, {rank, operation.peer, operation.tag},
               {operation, rank, Deadline::in(timeout_of(options)), std::move(entry)});
}

std::shared_ptr<Completion> Hub::recv(int rank, const Operation& operation, Entry entry, OpOptions options) {
  const std::lock_guard lock(mutex_);
  return match(sends_, recvs_, {operation.peer, rank, operation.tag},
               {operation, rank, Deadline::in(timeout_of(options)), std::move(entry)});
}

void Hub::fail_all(const Error& error) {
  if (cause_) return;
  cause_ = error;
  const auto fail = [this](int rank, Entry& entry) {
    if (entry.work) entry.work->fail(own_cause_[static_cast<std::size_t>(rank)].value_or(*cause_));
  };
  for (auto& [sequence, meeting] : meetings_) {
    for (int r = 0; r < size_; ++r) fail(r, meeting.entries[static_cast<std::size_t>(r)]);
  }
  for (auto* lines : {&sends_, &recvs_}) {
    for (auto& [line, parcels] : *lines) {
      for (auto& parcel : parcels) fail(parcel.rank, parcel.entry);
    }
    lines->clear();
  }
  meetings_.clear();
}

void Hub::abort(int rank, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (cause_) return;
  own_cause_[static_cast<std::size_t>(rank)] = Error(Errc::aborted, reason);
  fail_all(make_error(Errc::peer_lost, "rank {} aborted the group: {}", rank, reason));
}

void Hub::leave(int rank) {
  const std::lock_guard lock(mutex_);
  left_[static_cast<std::size_t>(rank)] = true;
  for (const auto& [sequence, meeting] : meetings_) {
    // It takes its buffers with it, if it had entered; and if it had not, the others would wait for ever.
    return fail_all(make_error(Errc::peer_lost, "rank {} left the group while {} #{} was in progress", rank,
                               describe(meeting.operation), sequence));
  }
  for (const auto* lines : {&sends_, &recvs_}) {
    for (const auto& [line, parcels] : *lines) {
      const auto [sender, receiver, tag] = line;
      if (parcels.empty() || (sender != rank && receiver != rank)) continue;
      return fail_all(make_error(Errc::peer_lost, "rank {} left the group before {} of rank {} was matched", rank,
                                 describe(parcels.front().operation), parcels.front().rank));
    }
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
  for (const auto* lines : {&sends_, &recvs_}) {
    for (const auto& [line, parcels] : *lines) {
      if (parcels.empty() || parcels.front().entry.work.get() != work || !parcels.front().deadline.expired()) continue;
      return fail_all(make_error(Errc::timeout, "rank {} has not answered the {} of rank {} within its timeout",
                                 parcels.front().operation.peer, describe(parcels.front().operation),
                                 parcels.front().rank));
    }
  }
}

// Waits in the shares between which deadlines of the hub are looked at.
class HubWork : public Work {
 public:
  HubWork(std::shared_ptr<Hub> hub, std::shared_ptr<Completion> work) : hub_(std::move(hub)), work_(std::move(work)) {}

  bool done() const override { return work_->done(); }
  std::optional<Error> error() const override { return work_->error(); }
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
    const Entry entry{call.input, call.output, call.operation.factor, work};
    switch (call.operation.kind) {
      case OpKind::send:
        hub_->send(rank_, call.operation, entry, call.options);
        break;
      case OpKind::recv:
        hub_->recv(rank_, call.operation, entry, call.options);
        break;
      default:
        hub_->enter(rank_, call.operation, entry, call.options);
    }
    return std::make_shared<HubWork>(hub_, std::move(work));
  }

  void abort(const std::string& reason) override { hub_->abort(rank_, reason); }

 private:
  const std::shared_ptr<Hub> hub_;
  const int rank_;
};

}  // namespace

std::vector<std::unique_ptr<ProcessGroup>> make_thread_groups(int size, std::chrono::milliseconds timeout) {
  if (size < 1) throw make_error(Errc::usage, "a group needs at least 1 rank, not {}", size);
  auto hub = std::make_shared<Hub>(size, timeout);
  std::vector<std::unique_ptr<ProcessGroup>> groups;
  for (int rank = 0; rank < size; ++rank) groups.push_back(std::make_unique<ThreadGroup>(hub, rank));
  return groups;
}

}  // namespace ddprun::comm
