#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ddprun/worker/comm/operations/operation.h"

namespace ddprun::testing::fake_nccl {

// One call of one rank. kind: allreduce, reduce, broadcast, allgather, reduce_scatter, send or recv.
struct Call {
  comm::OpKind kind{};
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  DType type{};
  ReduceOp op{};
  double factor = 1;
  int peer = -1;
};

// The ranks of one communicator, and what they are in. All memory is moved under one lock, by the last who comes.
class Clique {
 public:
  explicit Clique(int size);

  int size() const { return static_cast<int>(ranks_.size()); }
  void join(int rank, int device);
  bool complete() const;
  bool shares_a_device() const;

  // Counted from issue() on, until execute() is over; that returns when all calls are done, or the rank is aborted.
  void issue(int rank);
  void execute(int rank, const std::vector<Call>& calls);
  bool quiet(int rank) const;
  // What the rank is in ends undone, and so does what it has issued.
  void abort(int rank);

  // The one that is left without the excluded ranks; the same for all that ask.
  std::shared_ptr<Clique> without(const std::vector<int>& excluded);

 private:
  struct Posted {
    Call call;
    bool done = false;
  };
  using PostedCall = std::shared_ptr<Posted>;
  struct Rank {
    bool here = false;
    int device = 0;
    int issued = 0;
    int aborted = 0;  // of those issued, how many are not to be carried out any more
    std::uint64_t next = 0;
  };
  using Meeting = std::vector<PostedCall>;  // by rank
  struct Pipe {
    std::deque<PostedCall> sent, awaited;
  };

  PostedCall post(int rank, const Call& call);
  void meet(int rank, const PostedCall& posted);
  void match(Pipe& pipe);
  void withdraw(int rank);
  static bool agree(const Meeting& meeting);
  static void execute(const Meeting& meeting);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Rank> ranks_;
  std::map<std::uint64_t, Meeting> meetings_;
  std::map<std::pair<int, int>, Pipe> pipes_;  // by sender and receiver
  std::map<std::vector<int>, std::shared_ptr<Clique>> shrunk_;
};

}  // namespace ddprun::testing::fake_nccl
