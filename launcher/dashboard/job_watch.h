#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/steady_timer.hpp>

#include "ddprun/launcher/dashboard/http_server.h"
#include "ddprun/launcher/dashboard/job_model.h"
#include "ddprun/launcher/dashboard/journal.h"
#include "ddprun/launcher/dashboard/status_poller.h"

namespace ddprun::dashboard {

// The value of --dashboard: where the page is served.
struct DashboardAddress {
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any free one
  std::string token = {};  // empty: a new one
};
// "PORT" or "ADDRESS:PORT", of which the address is a literal or localhost. Throws Errc::usage.
DashboardAddress parse_dashboard_address(const std::string& text);

// What a watch of a job needs besides its events.
struct WatchSpec {
  JobFacts facts;
  std::filesystem::path journal;              // a folder; empty: none is written
  std::optional<DashboardAddress> dashboard;  // none: no page
  // The training of this node's workers that run, by local rank.
  std::function<std::vector<std::pair<int, TrainingRecord>>()> training;
};

// The view of the job that an agent runs: brought up to date by the agent's events and by what the workers publish,
// served as a page and as metrics, and written to a journal.
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
  void failed(const std::vector<WorkerFailure>& failures);
  void workers_replaced(int restarts_used);
  void changed(const std::vector<WorkerReport>& workers);
  // The address of the rendezvous server is known: other nodes are asked for there.
  void ask_others_at(const std::string& endpoint);
  // Returns the view of this moment as JSON.
  std::string snapshot();
  // The job has ended: clients and journal get what is left to tell.
  void finish();

 private:
  void wait();
  void refresh();
  void publish();
  HttpAnswer get(const HttpRequest& request);
  std::optional<StreamEvent> next(const std::string& last_id);
  void serve(boost::asio::io_context& loop);

  boost::asio::io_context& loop_;
  const WatchSpec spec_;
  JobModel model_;
  const std::string instance_;  // part of the ids of events, so that those of another agent are not taken for its own
  boost::asio::steady_timer timer_;
  Milliseconds published_{};
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<StatusPoller> poller_;
};

}  // namespace ddprun::dashboard
