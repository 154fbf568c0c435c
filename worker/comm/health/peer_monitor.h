#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ddprun/rendezvous/store/store.h"
#include "ddprun/worker/comm/health/diagnosis.h"
#include "ddprun/worker/comm/health/neighbour_probe.h"
#include "ddprun/worker/comm/health/operation_log.h"
#include "ddprun/worker/comm/health/process_monitor.h"
#include "ddprun/worker/comm/health/rank_records.h"
#include "ddprun/worker/comm/operations/operation.h"

namespace ddprun::comm {

struct MonitorOptions {
  int rank = 0;
  int size = 1;
  std::string prefix;                              // of the group's keys in the store
  std::string terms;                               // of the group (terms.h), as this rank asks for it
  std::chrono::milliseconds beat{1000};            // how often this rank publishes its record
  std::chrono::milliseconds freeze_bound{5000};    // of a rank's silence; zero: any
  std::chrono::milliseconds store_patience{5000};  // with a store that does not answer
  std::optional<int> store_host;                   // the rank whose process serves the store, if one does
  bool beside_store = false;                       // the store is on this rank's host
};

// Finds out, through the store, why a group fails, and makes it known to all its ranks.
//
// Each rank has a connection of its own to the store with a last will: should the process die, the store itself sets
// the group's failure key, for which every rank waits. Ranks of one host are told by its kernel, too. Each rank
// publishes a record of its progress, which it reads in its operation_log, as its heartbeat; the rank before it watches
// that, so that a frozen one is found whether or not anybody waits for it. An operation that passes its deadline, or
// whose transport fails, makes its rank compare the records of all ranks at two moments and decide who is to blame. The
// first verdict set in the store counts for everybody. A server without wills (PyTorch's own) leaves the rest of it.
//
// The thread belongs to the monitor. on_verdict is called there, once.
class PeerMonitor {
 public:
  using OnVerdict = std::function<void(const Error&)>;

  // Announces this rank before it returns. store: used by nobody else. operation_log: of this rank, outlives the
  // monitor. Throws Errc::mismatch, at this rank and then at the others, when one of those that have come asks for
  // other terms.
  PeerMonitor(std::shared_ptr<Store> store, MonitorOptions options, const OperationLog& operation_log,
              OnVerdict on_verdict);
  // Says goodbye to the others: no loss.
  ~PeerMonitor();

  const std::string& identity() const { return identity_; }  // "pid 42 on host b"
  // How long after a transport's failure a last will may take to come.
  static std::chrono::milliseconds will_delay();
  // How long after a deadline or a transport's failure the verdict may take.
  std::chrono::milliseconds verdict_delay() const;

  // Every rank has come to the group: from now on they can be asked for. linger_timeout: of its transport.
  void all_here(std::optional<std::chrono::milliseconds> linger_timeout);
  // The transport of an operation that began then failed with these words: find the reason.
  void transport_failed(const OperationLog::Entry& entry, const std::string& message);
  // This rank ends the group: tell the others why.
  void publish(const Verdict& verdict);

 private:
  using Clock = std::chrono::steady_clock;
  using Records = std::vector<std::optional<RankRecord>>;  // by rank
  // An operation to worry about.
  struct Suspect {
    OperationLog::Entry entry;
    std::optional<std::string> failure;  // of the transport
    Clock::time_point failed_at;
  };
  void announce();
  void compare_terms();
  void run();
  void watch();
  std::optional<Verdict> next_verdict();
  std::optional<Verdict> await_failure_key();
  std::optional<Verdict> take_published();
  std::optional<Suspect> find_suspect(Clock::time_point now);
  std::optional<Verdict> examine(const Suspect& suspect, Clock::time_point now);
  Stall stall_of(const Suspect& suspect, Clock::time_point now) const;
  std::optional<Verdict> examine_ended();
  std::optional<Verdict> find_namesake();
  std::optional<Verdict> compare_with_neighbour();
  std::optional<Verdict> compare_with_partners();
  Records read_partners(const std::vector<OperationLog::Entry>& messages);
  std::optional<Verdict> examine_departed() const;
  std::optional<Verdict> compare_with_departed();
  std::optional<Verdict> give_up(const Stall& stall, const Records& records, Clock::time_point now);
  std::optional<std::chrono::milliseconds> linger_timeout();
  void meet_peers();
  void watch_processes();
  void find_store();
  std::string describe_rank(int rank);
  std::string describe_process(int rank) const;
  void beat(bool left);
  Verdict settle(const Verdict& verdict);
  Verdict lost_store(const Error& error) const;
  void say_goodbye();
  bool stopping();
  Deadline store_deadline() const { return Deadline::in(options_.store_patience); }

  const std::shared_ptr<Store> store_;
  const MonitorOptions options_;
  const OperationLog& operation_log_;
  const OnVerdict on_verdict_;
  const std::string identity_;
  const std::string failure_key_;
  const std::string processes_key_;
  const std::string beside_store_key_;      // a rank of the host that has the store, where one knows
  const std::chrono::milliseconds window_;  // between two readings that prove a standstill
  const std::chrono::milliseconds slice_;   // of waiting on the failure key, between which this thread looks around

  // Used by the monitor's thread alone.
  Clock::time_point next_beat_;
  RankRecord last_beat_;
  std::optional<RankRecords::Reading> baseline_;
  RankRecords records_;
  NeighbourProbe neighbour_;
  bool peers_known_ = false;
  std::map<int, Clock::time_point> departures_;  // by partner of a send or receive: when it was noticed
  std::map<int, ProcessIdentity> local_peers_;   // ranks of this host
  std::string store_host_;                       // who serves the store, once all are here: "rank 0 (pid 42 on host b)"
  std::string beside_store_;                     // who runs on the host that has it, where that is another

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool stopping_ = false;
  std::optional<Verdict> to_publish_;
  std::optional<Suspect> failed_;  // the first one whose transport failed
  std::vector<int> ended_;         // ranks whose processes ended, not yet examined
  bool all_here_ = false;
  std::optional<std::chrono::milliseconds> linger_timeout_;

  std::optional<ProcessMonitor> processes_;  // before what it calls goes

  std::thread thread_;  // last: runs on all the above
};

}  // namespace ddprun::comm
