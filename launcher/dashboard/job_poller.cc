#include "launcher/dashboard/job_poller.h"

#include <utility>

#include <boost/asio/io_context.hpp>

#include "common/error.h"
#include "common/log.h"

namespace ddprun::dashboard {
namespace {

constexpr std::chrono::seconds reply_timeout{2};

}  // namespace

JobPoller::JobPoller(boost::asio::io_context& loop, Spec spec, Handlers handlers)
    : spec_(std::move(spec)), handlers_(std::move(handlers)), timer_(loop), requests_(loop) {
  ask();
}

void JobPoller::ask() {
  if (spec_.asks_status) return ask_status();
  ask_groups();
}

void JobPoller::wait() {
  timer_.run_after(spec_.interval, [this] { ask(); });
}

void JobPoller::ask_status() {
  const auto request = [this, server = spec_.server, run_id = spec_.run_id](const std::stop_token& stop) mutable {
    server.stop = stop;
    auto jobs = ask_for_status(server, run_id, Deadline::in(reply_timeout));
    if (jobs.empty()) throw make_error(Errc::unreachable, "the rendezvous server has no such job any more");
    return std::function<void()>([this, job = std::move(jobs.front())] {
      handlers_.status(job);
      ask_groups();
    });
  };
  requests_.add({.ask = request, .failed = [this](const std::string& problem) {
                   log::debug("the dashboard does not hear of the job: {}", problem);
                   handlers_.unheard(problem);
                   ask_groups();
                 }});
}

void JobPoller::ask_groups() {
  const auto job = handlers_.wanted();
  if (!job || job->store.empty()) return wait();
  StoreAccess access{.credentials = spec_.server.credentials};
  const auto request = [this, job = *job, access](const std::stop_token& stop) mutable {
    access.stop = stop;
    return std::function<void()>([this, groups = query_progress(job, Deadline::in(reply_timeout), access)] {
      handlers_.groups(groups);
      wait();
    });
  };
  requests_.add({.ask = request, .failed = [this](const std::string& problem) {
                   log::debug("the dashboard does not see the process groups: {}", problem);
                   wait();
                 }});
}

}  // namespace ddprun::dashboard
