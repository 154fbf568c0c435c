#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/report/worker_status.h"
#include "rendezvous/rendezvous_event.h"
#include "rendezvous/round.h"

namespace ddprun {

// The fields that all events of one agent share.
struct EventFacts {
  std::string run_id;
  std::string role;
  std::string host;
  std::string backend;  // the rendezvous' back end
  std::string program;  // the program that the workers run
  std::int64_t pid = 0;
};

// Reports the events of a job as torchrun does, one JSON object each:
//   {"name": "torchelastic.worker.status.<STATE>", "source": "AGENT"|"WORKER", "timestamp": MILLISECONDS, "metadata":
//   {run_id, global_rank, ...}}, STATE one of START, SUCCEEDED, FAILED, TERMINATED (stopped by the agent) of a worker,
//   and RENDEZVOUS, ASSIGN_WORKER_RANKS, SUCCEEDED, FAILED of the agent;
//   {"name": "rendezvous.<what>", run_id, message, hostname, pid, node_state, master_endpoint, rank, local_id,
//   error_trace} of the rendezvous.
// In the nested metadata numbers are arrays of one element, as torchrun writes them. duration_ms of RENDEZVOUS is the
// time until a round was agreed, that of ASSIGN_WORKER_RANKS from then until all nodes were ready.
//
// A value; the clock and the sink are passed in. Its only I/O is reading the error files of failed workers. Threads:
// not thread-safe. Errors: none. Units: milliseconds.
class EventReporter {
 public:
  using Clock = std::function<std::chrono::milliseconds()>;  // since the epoch
  using Sink = std::function<void(std::string line)>;        // receives one event without a newline

  EventReporter(EventFacts facts, Clock clock, Sink sink);

  // The agent is about to join the rendezvous.
  void joining();
  void on(const RendezvousEvent& event);
  void workers_started(const std::vector<WorkerStatus>& workers);
  void workers_ended(const std::vector<WorkerStatus>& workers);
  // These workers have failed, and others are started to replace them while the round continues.
  void workers_replaced(const std::vector<WorkerStatus>& failed, int restarts_used);
  void agent_ended(bool success);

 private:
  struct RendezvousRecord {
    const char* name;
    const char* node_state;
    std::string message;
    bool of_round = false;  // rank and master address are known
    std::string error;
  };

  void on_event(const RendezvousWaiting& event);
  void on_event(const RoundProposed& event);
  void on_event(const RoundStarted& event);
  void on_event(const RoundChanged& event);
  void on_event(const WorkersRecoverable&) {}
  void on_event(const StandbyAsked&) {}
  void on_event(const RecoveryAsked&) {}
  void on_event(const WorkersReplaced&) {}  // workers_replaced() has them
  void on_event(const ReplacementRefused&) {}
  void on_event(const LeaveAnswered&) {}
  void on_event(const JobEnded& event);
  void on_event(const ContactBroken& event);
  void on_event(const RoundResumed& event);
  void on_event(const ContactLost& event);
  void report(const RendezvousRecord& event);
  void report_agent(const char* state, std::optional<std::chrono::milliseconds> duration);
  void report_ends(const std::vector<WorkerStatus>& workers);
  void report_worker(const char* state, const WorkerStatus& worker);

  EventFacts facts_;
  Clock clock_;
  Sink sink_;
  std::chrono::milliseconds began_{};
  std::chrono::milliseconds waiting_since_{};
  std::chrono::milliseconds proposed_at_{};
  Round round_;
};

// The value of --event_log_handler.
struct EventTarget {
  enum class Kind { none, console, file } kind = Kind::none;
  std::string path;  // path of a file to append to
};
// Parses "null", "console" or "file:PATH". Throws Errc::usage.
EventTarget parse_event_target(const std::string& text);

}  // namespace ddprun
