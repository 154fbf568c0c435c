#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/timer.h"
#include "launcher/dashboard/job_model.h"
#include "launcher/dashboard/job_poller.h"
#include "launcher/dashboard/journal.h"
#include "launcher/dashboard/rank_details.h"
#include "launcher/dashboard/view_server.h"

namespace ddprun::dashboard {

// The inputs of a job's watch besides its events.
struct WatchSpec {
  JobFacts facts;
  std::filesystem::path journal;              // a folder; empty: no journal is written
  std::optional<DashboardAddress> dashboard;  // nullopt: no page
  bool curve = false;                         // the curves are shown at the end, also for a short run
  // This node's workers that run, by local rank.
  std::function<std::vector<std::pair<int, TrainingRecord>>()> training;
  std::function<RankEvidence(int local_rank)> evidence;
  std::function<std::optional<NodeUsage>()> usage;                         // this node's; nullopt: not known yet
  std::function<std::map<std::string, std::uint64_t>()> store_operations;  // those of the workers' store, by name
  std::function<JobStatus()> own_status;                                   // the job with this node only
};

// The view of the job that an agent runs: updated by the agent's events and by the workers' records, served as a page
// and as metrics, and written to a journal.
//
// Ownership: the loop outlives it. Threads: single-threaded on the loop. Errors: the constructor throws Errc::io where
// the page cannot be served; a journal that cannot be written is a warning.
class JobWatch {
 public:
  JobWatch(boost::asio::io_context& loop, WatchSpec spec);
  ~JobWatch();
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  void on(const RendezvousEvent& event);
  // Something happened that does not change what the job does.
  void note(const std::string& kind, const std::string& text);
  void failed(const std::vector<WorkerFailure>& failures);
  // These workers are about to be replaced, while the others run on.
  void workers_replaced(const std::vector<int>& local_ranks, int restarts_used);
  void changed(const std::vector<WorkerReport>& workers);
  // The rendezvous server is known: it is asked for other nodes, and the workers' store for their process groups, while
  // somebody looks at the page.
  void ask_others_at(const ServerAddress& server);
  // This agent leaves the job, for this reason, and its workers end.
  void leaving(const std::string& reason) { leaving_ = reason; }
  // Returns the view of this moment as JSON.
  std::string snapshot();
  // The view that the terminal shows at the end.
  const JobView& view() const { return model_.view(); }
  // The agent ends with this exit code: clients and journal get the last changes.
  void finish(int exit_code);

 private:
  void wait();
  void tick();
  // Reads the records at short intervals from now on.
  void take_place(const Round& round);
  void watch_recovery();
  void refresh();
  void publish();
  std::string details(int rank) const;

  boost::asio::io_context& loop_;
  const WatchSpec spec_;
  JobModel model_;
  Timer timer_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<ViewServer> server_;
  std::vector<GroupProgress> groups_;  // the last ones in the workers' store
  std::optional<int> self_;            // first rank of this node
  int workers_ = 0;                    // number of workers of this node
  std::string leaving_;
  std::unique_ptr<JobPoller> poller_;
};

}  // namespace ddprun::dashboard
