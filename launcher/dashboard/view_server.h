#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launcher/dashboard/http_server.h"
#include "launcher/dashboard/job_model.h"

namespace ddprun::dashboard {

// The address at which a page is served: the value of --dashboard.
struct DashboardAddress {
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any free one
  std::string token = {};  // empty: a new one
};
// "PORT" or "ADDRESS:PORT", of which the address is a literal or localhost. Throws Errc::usage.
DashboardAddress parse_dashboard_address(const std::string& text);

// Serves the view of a job: the page, its stream of changes, /metrics, /state, /rank, /report and /trace.
//
// Ownership: the loop and the model outlive it. Threads: single-threaded on the loop, which calls the source's
// functions. Errors: the constructor throws Errc::io where the page cannot be served. It logs the page's address.
class ViewServer {
 public:
  struct Source {
    const JobModel& model;
    std::function<void()> refresh;                 // brings the model up to date
    std::function<std::string(int rank)> details;  // calls rank_details()
  };

  ViewServer(boost::asio::io_context& loop, const DashboardAddress& address, const std::string& host, Source source);

  // Sends the changes to the clients, at most four times a second.
  void publish();
  // Does what publish() does at once, as far as the connections accept it, before this process ends.
  void publish_last();
  // Returns whether a page is open.
  bool watched() const { return server_->streams() > 0; }
  // Returns whether a page is open, or another request came a short time ago.
  bool asked() const;

 private:
  HttpAnswer get(const HttpRequest& request);
  HttpAnswer metrics(const std::string& accept) const;
  std::optional<StreamEvent> next(const std::string& last_id) const;

  const Source source_;
  const std::string instance_;  // part of the ids of events, so that those of another server are not taken for its own
  std::chrono::steady_clock::time_point published_{};
  std::optional<std::chrono::steady_clock::time_point> asked_at_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace ddprun::dashboard
