#include "ddprun/launcher/dashboard/job_watch.h"

#include <charconv>
#include <variant>

#include <boost/asio/io_context.hpp>
#include <fmt/format.h>

#include "ddprun/common/error.h"
#include "ddprun/common/host_port.h"
#include "ddprun/common/log.h"
#include "ddprun/common/random.h"
#include "ddprun/launcher/dashboard/http_rules.h"
#include "ddprun/launcher/dashboard/metrics.h"
#include "ddprun/launcher/dashboard/page.h"
#include "ddprun/launcher/dashboard/view_json.h"

namespace ddprun::dashboard {
namespace {

// How often what the workers publish is read: while somebody looks at it, and otherwise for the curves.
constexpr Milliseconds watched_interval{250};
constexpr Milliseconds interval{1'000};
constexpr Milliseconds recovery_interval{50};  // so that its phases are measured
constexpr Milliseconds publish_interval{250};  // at most so often to a client

Milliseconds wall_clock() {
  return std::chrono::duration_cast<Milliseconds>(std::chrono::system_clock::now().time_since_epoch());
}

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
// Clang deduces the arguments of an aggregate from version 17 on.
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace

DashboardAddress parse_dashboard_address(const std::string& text) {
  unsigned port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error == std::errc() && end == text.data() + text.size() && port <= 65535)
    return {.port = static_cast<std::uint16_t>(port)};
  const auto parsed = parse_host_port(text);
  if (parsed.host.empty() || !parsed.port)
    throw make_error(Errc::usage, "--dashboard = {}: expected PORT or ADDRESS:PORT", text);
  return {.address = name_to_resolve(parsed.host), .port = *parsed.port};
}

JobWatch::JobWatch(boost::asio::io_context& loop, WatchSpec spec)
    : loop_(loop), spec_(std::move(spec)), model_(spec_.facts, wall_clock()), instance_(random_hex(4)), timer_(loop) {
  try {
    if (!spec_.journal.empty()) journal_ = std::make_unique<Journal>(spec_.journal / journal_name);
  } catch (const Error& e) {
    log::warn("ddprun report will have nothing of this job: {}", e.what());
  }
  if (spec_.dashboard) serve(loop);
  wait();
}

JobWatch::~JobWatch() = default;

void JobWatch::serve(boost::asio::io_context& loop) {
  const auto token = spec_.dashboard->token.empty() ? random_hex(16) : spec_.dashboard->token;
  server_ = std::make_unique<HttpServer>(
      loop,
      HttpSpec{
          .address = spec_.dashboard->address, .port = spec_.dashboard->port, .host = spec_.facts.host, .token = token},
      HttpServer::Handlers{.page =
                               [] {
                                 const auto nonce = random_hex(16);
                                 return HttpAnswer{.type = "text/html; charset=utf-8",
                                                   .body = page_with(nonce, ""),
                                                   .headers = {{"Content-Security-Policy", content_policy(nonce)}}};
                               },
                           .get = [this](const HttpRequest& request) { return get(request); },
                           .next = [this](const std::string& last_id) { return next(last_id); }});
  const auto& address = spec_.dashboard->address;
  const bool every = address == "0.0.0.0" || address == "::";
  log::info("dashboard: http://{}/#{}", format_host_port(every ? spec_.facts.host : address, server_->port()), token);
}

HttpAnswer JobWatch::get(const HttpRequest& request) {
  if (request.path == "/metrics") {
    refresh();
    const auto format = metrics_format(request.accept);
    return {.type = std::string(content_type(format)), .body = metrics_text(model_.view(), format)};
  }
  if (request.path == "/state") return {.type = "application/json", .body = snapshot()};
  return {.status = 404, .body = "there is nothing at this path\n"};
}

std::optional<StreamEvent> JobWatch::next(const std::string& last_id) {
  Version seen = 0;
  if (const auto dash = last_id.find('-'); dash != std::string::npos && last_id.substr(0, dash) == instance_)
    std::from_chars(last_id.data() + dash + 1, last_id.data() + last_id.size(), seen);
  const auto version = model_.view().version;
  if (seen == version) return std::nullopt;
  return StreamEvent{.id = fmt::format("{}-{}", instance_, version), .data = changes_json(model_, seen)};
}

void JobWatch::wait() {
  const bool recovers = model_.view().state == State::recovering;
  const bool watched = server_ && server_->streams() > 0;
  timer_.expires_after(recovers ? recovery_interval : watched ? watched_interval : interval);
  timer_.async_wait([this](boost::system::error_code failure) {
    if (failure) return;
    refresh();
    publish();
    wait();
  });
}

void JobWatch::refresh() {
  const auto now = wall_clock();
  // A record says when the first step was done: the time up to now is accounted after that is known.
  for (const auto& [local_rank, record] : spec_.training()) model_.training(now, local_rank, record);
  model_.tick(now);
}

void JobWatch::publish() {
  if (journal_) journal_->update(model_);
  const auto now = wall_clock();
  // The clock may be set back.
  if (now >= published_ && now - published_ < publish_interval) return;
  published_ = now;
  if (server_) server_->notify();
}

void JobWatch::on(const RendezvousEvent& event) {
  const auto now = wall_clock();
  refresh();
  std::visit(Overloaded{[&](const RendezvousWaiting& e) { model_.waiting(now, e.text); },
                        [&](const RoundProposed& e) { model_.round_proposed(now, e); },
                        [&](const RoundStarted& e) { model_.round_started(now, e.round); },
                        [&](const JobEnded& e) { model_.ended(now, e.result); },
                        [&](const ContactBroken& e) { model_.contact_broken(now, e.text); },
                        [&](const ContactLost& e) { model_.ended(now, {.reason = e.error.what()}); }},
             event);
  if (journal_) journal_->update(model_);
}

void JobWatch::failed(const std::vector<WorkerFailure>& failures) {
  refresh();
  model_.failed(wall_clock(), failures);
  if (journal_) journal_->update(model_);
}

void JobWatch::workers_replaced(int restarts_used) {
  refresh();
  model_.workers_replaced(wall_clock(), restarts_used);
  if (journal_) journal_->update(model_);
}

void JobWatch::changed(const std::vector<WorkerReport>& workers) {
  refresh();  // the last that an ended worker has published
  model_.workers(wall_clock(), workers);
}

void JobWatch::ask_others_at(const std::string& endpoint) {
  if (!server_ || spec_.facts.max_nodes == 1) return;
  poller_ = std::make_unique<StatusPoller>(loop_, endpoint, spec_.facts.run_id,
                                           [this](const JobStatus& job) { model_.others(wall_clock(), job); });
}

std::string JobWatch::snapshot() {
  refresh();
  return snapshot_json(model_);
}

void JobWatch::finish() {
  timer_.cancel();
  poller_.reset();
  refresh();
  if (journal_) journal_->flush(model_);
  if (server_) server_->notify_last();
}

}  // namespace ddprun::dashboard
