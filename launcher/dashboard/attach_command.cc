#include "launcher/dashboard/attach_command.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/error.h"
#include "common/exit_code.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/timer.h"
#include "common/version.h"
#include "common/wall_clock.h"
#include "launcher/dashboard/collectives.h"
#include "launcher/dashboard/followed_job.h"
#include "launcher/dashboard/job_poller.h"
#include "launcher/dashboard/local_agent.h"
#include "launcher/dashboard/rank_details.h"
#include "launcher/dashboard/token_file.h"
#include "launcher/dashboard/view_server.h"
#include "rendezvous/job_policy.h"
#include "rendezvous/trust/token_file.h"

namespace ddprun::dashboard {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::seconds server_timeout{10};
constexpr std::chrono::milliseconds status_interval{1'000};
constexpr std::chrono::milliseconds view_interval{250};

// The settings of --rdzv_conf that concern a client.
struct TrustConf {
  std::string token_file;
  bool encrypt = true;
};

TrustConf parse_conf(const std::string& text) {
  TrustConf conf;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    const auto setting = text.substr(begin, end - begin);
    const auto equals = setting.find('=');
    const auto key = setting.substr(0, equals);
    const auto value = equals == std::string::npos ? "" : setting.substr(equals + 1);
    if (key == "token_file" && !value.empty())
      conf.token_file = value;
    else if (key == "tls" && (value == "on" || value == "off"))
      conf.encrypt = value == "on";
    else
      throw make_error(Errc::usage, "--rdzv_conf: '{}': ddprun dashboard takes only token_file=FILE and tls=on|off",
                       setting);
    begin = end + 1;
  }
  return conf;
}

std::shared_ptr<const Credentials> credentials_of(const SubcommandLine& line) {
  const auto conf = parse_conf(line.value("rdzv_conf"));
  if (conf.token_file.empty()) return nullptr;
  const auto run_id = line.has("rdzv_id") ? line.value("rdzv_id") : JobPolicy().run_id;
  return std::make_shared<Credentials>(read_token_file(conf.token_file), run_id,
                                       conf.encrypt ? Credentials::Transport::tls : Credentials::Transport::clear);
}

JobStatus only_job(const ServerAddress& server, const std::string& run_id) {
  auto jobs = ask_for_status(server, run_id, Deadline::in(server_timeout));
  if (jobs.empty())
    throw make_error(Errc::unreachable, "no job{} at {}", run_id.empty() ? "" : fmt::format(" of run id '{}'", run_id),
                     format_host_port(server.host, server.port));
  std::vector<std::string> names;
  for (const auto& job : jobs) names.push_back(job.run_id);
  if (jobs.size() > 1)
    throw make_error(Errc::usage, "there are several jobs ({}): choose one with --rdzv_id", fmt::join(names, ", "));
  return std::move(jobs.front());
}

DashboardAddress address_of(const SubcommandLine& line) {
  auto address = parse_dashboard_address(line.has("dashboard") ? line.value("dashboard") : "0");
  if (line.has("dashboard_token_file")) address.token = token_in(line.value("dashboard_token_file"));
  return address;
}

JobFacts facts_of(const JobStatus& job) {
  return {.run_id = job.run_id,
          .program = job.program,
          .host = local_host_name(),
          .version = std::string(project_version()),
          .min_nodes = job.min_nodes,
          .max_nodes = job.max_nodes,
          .max_restarts = job.max_restarts};
}

// The page of a job that other processes run.
class AttachedDashboard {
 public:
  AttachedDashboard(const ServerAddress& server, const JobStatus& job, const DashboardAddress& address)
      : model_(facts_of(job), wall_clock()),
        job_(model_),
        view_(loop_, address, local_host_name(),
              {.model = model_,
               .refresh = [this] { model_.tick(wall_clock()); },
               .details = [this](int rank) { return rank_details(model_.view(), rank, groups_, std::nullopt); }}),
        poller_(loop_, {.server = server, .run_id = job.run_id, .asks_status = true, .interval = status_interval},
                {.status = [this](const JobStatus& status) { job_.status(wall_clock(), status); },
                 .unheard = [this](const std::string& problem) { unheard(problem); },
                 .wanted = [this] { return view_.asked() ? job_.last() : std::nullopt; },
                 .groups = [this](const auto& groups) { take(groups); }}),
        signals_(loop_, SIGINT, SIGTERM),
        timer_(loop_) {
    job_.status(wall_clock(), job);
  }

  void run() {
    signals_.async_wait([this](boost::system::error_code, int) { loop_.stop(); });
    wait();
    loop_.run();
  }

 private:
  void wait() {
    timer_.run_after(view_interval, [this] {
      model_.tick(wall_clock());
      view_.publish();
      wait();
    });
  }

  void unheard(const std::string& problem) {
    const bool news = model_.view().silence.empty() && model_.view().result.empty();
    job_.unheard(wall_clock(), problem);
    if (!news) return;
    const auto& view = model_.view();
    const auto what = view.silence.empty() ? fmt::format("{}: {}", name_of(view.state), view.result)
                                           : "the job is not heard any more: " + view.silence;
    log::info("{}; the page stays until this command is interrupted", what);
  }

  void take(const std::vector<GroupProgress>& groups) {
    groups_ = living_groups(groups);
    model_.groups(wall_clock(), groups_);
  }

  asio::io_context loop_{1};
  JobModel model_;
  FollowedJob job_;
  std::vector<GroupProgress> groups_;
  ViewServer view_;
  JobPoller poller_;
  asio::signal_set signals_;
  Timer timer_;
};

}  // namespace

int attach_dashboard(const SubcommandLine& line, const Environment& environment) {
  const auto address = address_of(line);
  const auto credentials = credentials_of(line);
  auto endpoint = line.value("rdzv_endpoint");
  if (endpoint.empty()) endpoint = local_agent(line.value("rdzv_id"), environment).record.endpoint;
  const auto server = server_at(endpoint, credentials);
  const auto job = only_job(server, line.value("rdzv_id"));
  AttachedDashboard(server, job, address).run();
  return exit_success;
}

}  // namespace ddprun::dashboard
