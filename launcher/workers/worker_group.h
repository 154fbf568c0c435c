#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/environment.h"
#include "launcher/cli/worker_command.h"
#include "launcher/output/console.h"
#include "launcher/output/log_folder.h"
#include "launcher/output/output.h"
#include "launcher/placement/placement.h"
#include "launcher/report/worker_status.h"
#include "launcher/workers/guardian.h"
#include "launcher/workers/worker_environment.h"
#include "launcher/workers/worker_input.h"
#include "launcher/workers/worker_process.h"
#include "rendezvous/job_result.h"
#include "rendezvous/node_report.h"
#include "rendezvous/round.h"
#include "rendezvous/trust/credentials.h"

namespace ddprun {

// The settings that all rounds of a node's workers share.
struct GroupSpec {
  WorkerCommand command;
  Environment environment;  // the agent's environment
  WorkerEnvSpec exported;
  OutputSpec output;
  std::string host;  // this node's host, for reports
  Placement placement;
  WorkerInput input = WorkerInput::all;
  // A worker with a thread that has slept this long without interruption has failed; 0 disables this check.
  std::chrono::milliseconds uninterruptible_timeout{0};
  std::uint64_t descriptors = 0;                             // a worker's limit of open files; 0: that of this process
  std::shared_ptr<const Credentials> credentials = nullptr;  // passed on to the workers; null: none
};

// The node's workers as one unit: started together, stopped together, and ended together with every process they have
// created, including those that left their worker's process group.
//
// Ownership: borrows the loop, guardian, console and logs, which must outlive it. Destroying it does not stop workers.
// Threads: single-threaded on the loop, which the main thread runs (see start_process()). Handlers are called from
// within stop(), kill() and reap(), and from timers.
// Errors: start() throws Errc::io; failures of workers are reported through the handlers.
class WorkerGroup {
 public:
  struct Handlers {
    // No process of the round is left; called before succeeded, preempted and stopped.
    std::function<void(const std::vector<WorkerStatus>&)> ended;
    // One or more workers failed, which replace() or stop() follows, now or later; called again for others that fail
    // meanwhile. Not called after stop().
    std::function<void(std::vector<WorkerFailure>)> failed;
    // All workers exited with 0, and none of their processes is left.
    std::function<void()> succeeded;
    // All workers exited with 0 or exit_preempted, at least one with the latter, and none of their processes is left.
    std::function<void()> preempted;
    // No process of the round is left after stop(). preempted: all workers exited as for the handler preempted.
    std::function<void(bool preempted)> stopped;
    // The state of these workers has changed; also called for their first state.
    std::function<void(const std::vector<WorkerReport>&)> changed;
  };

  WorkerGroup(boost::asio::io_context& loop, Guardian& guardian, Console& console, const LogFolder& logs,
              GroupSpec spec, Handlers handlers);
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  // REQUIRES: no process of an earlier round is left. Throws Errc::io when a worker cannot be started; stop() then ends
  // those that were started. store_socket: WorkerEnvSpec::store_socket. If the round runs already, the workers join in
  // its Round::group_generation.
  void start(const Round& round, const std::string& store_socket = {});
  // The workers that run have the ranks of this round from now on. store_socket: that of workers which start later.
  void change_round(const Round& round, const std::string& store_socket);
  // Starts another process to replace a worker that has failed; the others continue to run. The rest of its process
  // group is killed. generation is the first one of the process group that the new worker is a member of
  // (DDPRUN_RECOVERY). Throws as start() does.
  void replace(int local_rank, std::uint64_t generation);
  // Starts another process of the workers' program before a worker is lost, unless there is one; replace() then makes
  // it the replacement, which saves the time in which a process starts. To be wanted only if the program knows
  // DDPRUN_STANDBY (standby_socket.h). Starts none where one process cannot become the worker of any local rank, once
  // the first worker has ended well, and where the kernel kills all processes of the cgroup for want of memory. Reports
  // do not have the process, and the workers' end is its own. A process that is not wanted any more is ended.
  void keep_standby(bool is_wanted);
  // On a node whose workers do not run: starts a process of the same kind for each local rank, as far as they are
  // missing, of which start() makes workers where those join a round that runs. round: what is known of one in which
  // this node would take part. Returns whether all are ready.
  bool stand_by(const Round& round);
  // Sends the signal to every worker's process group and kills the remaining processes after the grace period. May be
  // repeated: the signal is sent again, and the first grace period stays in force.
  void stop(int signal_number, std::chrono::milliseconds grace);
  // The workers are about to end by themselves, whatever their exit codes: kills those that run after the grace period.
  // stopped() follows as after stop().
  void release(std::chrono::milliseconds grace);
  // Ends the grace period of a stop() or release() now.
  void kill();
  // Sends SIGUSR1 or SIGUSR2 to every process of the workers' groups that the signal would not end.
  void notify(int signal_number);
  // Call before the agent sends the signal to the worker with this process id: notes the reason for the failure report.
  void record_signal(pid_t worker, int signal_number, const std::string& reason);
  // The workers of the current round, by local rank.
  std::vector<WorkerStatus> workers() const;
  // The streams of a worker that do not pass through this process.
  std::vector<UnseenStream> unseen_streams(int local_rank) const;
  // The end of the output of a worker of the current round, and of its predecessors if it has replaced any.
  OutputRouter::Recent recent_output(int local_rank) const;
  // The terminal of this process was resized: passes the size and SIGWINCH on to the workers.
  void window_changed();
  // Call on SIGCHLD.
  void reap();
  // Continues to read the workers' output after the console was full.
  void resume_output();

  // The states of the latest round's workers; empty once it has ended.
  std::vector<WorkerReport> reports() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
