#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddprun {

// The job, and the part of it on this node, as PMI describes it to MPI processes.
struct PmiJob {
  std::string name;             // name of the key-value space
  std::string process_mapping;  // the node of each rank: pmi_process_mapping()
  int size = 1;                 // ranks of the job
  int local_size = 1;           // number of them on this node
};

// The actions of a node's PMI server.
struct PmiReply {  // to send to a local rank
  int local_rank = 0;
  std::string text;
};
using PmiPairs = std::vector<std::pair<std::string, std::string>>;  // keys and values
struct PmiFence {  // all local ranks wait in a barrier: exchange these pairs with the other nodes, then fence_done()
  PmiPairs pairs;  // those put on this node since the last fence
};
struct PmiAbort {  // a local rank has called MPI_Abort
  int local_rank = 0;
  int exit_code = 0;
};
struct PmiViolation {  // a local rank has violated the protocol; nothing that it sends later is read
  int local_rank = 0;
  std::string what;
};
struct PmiActions {
  std::vector<PmiReply> replies;
  std::optional<PmiFence> fence;
  std::vector<PmiAbort> aborts;
  std::vector<PmiViolation> violations;
};

// The state machine of a node's server for PMI-1, the text protocol by which MPICH's processes ("simple PMI") find each
// other: a key-value space of the job, whose pairs the other nodes see after the next barrier of all ranks. No I/O. It
// refuses to spawn processes and to publish names.
//
// A value. Threads: not thread-safe. Errors: none thrown. Units: bytes.
class PmiState {
 public:
  static constexpr std::size_t longest_name = 256, longest_key = 64, longest_value = 1024;
  static constexpr std::size_t longest_line = 4096;

  explicit PmiState(PmiJob job);

  // A local rank has sent these bytes, in pieces of any size.
  PmiActions received(int local_rank, std::string_view bytes);
  // The other nodes' pairs have arrived: ends the barrier.
  PmiActions fence_done(const PmiPairs& pairs);

  // Returns the fault of a rank whose process has exited with code 0; empty if there is none.
  std::string complaint(int local_rank) const;

 private:
  struct Rank {
    std::string partial;           // an incomplete line
    bool spawning = false;         // in a request of several lines
    std::int64_t spawns_left = 0;  // further requests that belong to it
    bool begun = false;            // it has sent init
    bool active = false;           // between init and finalize
    bool in_barrier = false, broken = false;
  };
  class Line;

  Rank& rank(int local_rank) { return ranks_.at(static_cast<std::size_t>(local_rank)); }
  const Rank& rank(int local_rank) const { return ranks_.at(static_cast<std::size_t>(local_rank)); }
  void take(int local_rank, std::string_view text, PmiActions& actions);
  void take_of_spawn(int local_rank, std::string_view text, PmiActions& actions);
  void answer(int local_rank, const Line& line, PmiActions& actions);
  bool names_own_space(const Line& line) const;
  std::string put(const Line& line);
  std::string get(const Line& line) const;
  void enter_barrier(int local_rank, PmiActions& actions);

  const PmiJob job_;
  std::vector<Rank> ranks_;
  std::map<std::string, std::string, std::less<>> pairs_;
  PmiPairs fresh_;  // those put since the last fence
};

// The mapping "(vector,(0,2,4),(2,1,1))" means: from node 0 on two nodes with four ranks each, then one with one.
// nprocs are the ranks of each node, in the order of ranks.
std::string pmi_process_mapping(const std::vector<int>& nprocs);

// The name of the key-value space of a round: unique, and the same at all nodes, which know the first node's id. MPICH
// names its shared memory by it, and a rank that was killed leaves that memory behind.
std::string pmi_job_name(std::string_view first_node_id, std::int64_t generation);

// Pairs as the value of a key in the store. decode returns std::nullopt for texts that encode() does not return.
std::string encode_pmi_pairs(const PmiPairs& pairs);
std::optional<PmiPairs> decode_pmi_pairs(std::string_view text);

}  // namespace ddprun
