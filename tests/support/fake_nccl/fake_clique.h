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

#include "worker/comm/operations/operation.h"

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

// The ranks of one communicator and their calls. The last rank to make a call moves the data, under one lock.
class Clique {
 public:
  explicit Clique(int size);

  int size() const { return static_cast<int>(ranks_.size()); }
  void join(int rank, int device);
  bool complete() const;
  bool shares_a_device() const;

  // The rank is busy, and uses the memory of the calls, from issue() until execute() returns, which it does once all
  // calls are done or the rank is aborted.
  void issue(int rank, const std::vector<Call>& calls);
  void execute(int rank, const std::vector<Call>& calls);
  bool idle(int rank) const;
  bool uses(const void* memory) const;
  // Cancels the calls that the rank has issued.
  void abort(int rank);

  // The clique of the ranks that are not excluded; the same for all callers.
  std::shared_ptr<Clique> without(const std::vector<int>& excluded);

 private:
  struct Posted {
    Call call;
    bool done = false;
  };
  using PostedCall = std::shared_ptr<Posted>;
  struct Rank {
    bool joined = false;
    int device = 0;
    std::deque<std::vector<Call>> issued;
    std::size_t aborted = 0;  // number of issued ones that are cancelled
    std::uint64_t next = 0;
  };
  using CollectiveCalls = std::vector<PostedCall>;  // by rank
  struct Channel {
    std::deque<PostedCall> sends, receives;
  };

  PostedCall post(int rank, const Call& call);
  void add_to_collective(int rank, const PostedCall& posted);
  void match(Channel& channel);
  void withdraw(int rank);
  static bool agree(const CollectiveCalls& calls);
  static void execute(const CollectiveCalls& calls);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Rank> ranks_;
  std::map<std::uint64_t, CollectiveCalls> collectives_;
  std::map<std::pair<int, int>, Channel> channels_;  // by sender and receiver
  std::map<std::vector<int>, std::shared_ptr<Clique>> shrunk_;
};

}  // namespace ddprun::testing::fake_nccl
