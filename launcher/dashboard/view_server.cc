#include "launcher/dashboard/view_server.h"

#include <charconv>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <fmt/format.h>

#include "common/error.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/random.h"
#include "launcher/dashboard/http_rules.h"
#include "launcher/dashboard/metrics.h"
#include "launcher/dashboard/page.h"
#include "launcher/dashboard/trace.h"
#include "launcher/dashboard/view_json.h"

namespace ddprun::dashboard {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds publish_interval{250};  // least time between two messages to a client
constexpr std::chrono::seconds asked_lately{90};            // a scraper comes at least once a minute

HttpAnswer empty_page() {
  const auto nonce = random_hex(16);
  return {.type = "text/html; charset=utf-8",
          .body = page_with(nonce, ""),
          .headers = {{"Content-Security-Policy", content_policy(nonce)}}};
}

HttpAnswer file(std::string type, std::string name, std::string body) {
  return {.type = std::move(type),
          .body = std::move(body),
          .headers = {{"Content-Disposition", fmt::format("attachment; filename=\"{}\"", name)}}};
}

// Returns N for "rank=N"; -1 for anything else.
int rank_in(std::string_view query) {
  constexpr std::string_view name = "rank=";
  int rank = -1;
  if (query.starts_with(name)) std::from_chars(query.data() + name.size(), query.data() + query.size(), rank);
  return rank;
}

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

ViewServer::ViewServer(boost::asio::io_context& loop, const DashboardAddress& address, const std::string& host,
                       Source source)
    : source_(std::move(source)), instance_(random_hex(4)) {
  const auto token = address.token.empty() ? random_hex(16) : address.token;
  server_ = std::make_unique<HttpServer>(
      loop, HttpSpec{.address = address.address, .port = address.port, .host = host, .token = token},
      HttpServer::Handlers{.page = empty_page,
                           .get = [this](const HttpRequest& request) { return get(request); },
                           .next = [this](const std::string& last_id) { return next(last_id); }});
  const bool every = address.address == "0.0.0.0" || address.address == "::";
  log::info("dashboard: http://{}/#{}", format_host_port(every ? host : address.address, server_->port()), token);
}

HttpAnswer ViewServer::get(const HttpRequest& request) {
  asked_at_ = Clock::now();
  if (request.path == "/rank") return {.type = "application/json", .body = source_.details(rank_in(request.query))};
  source_.refresh();
  if (request.path == "/metrics") return metrics(request.accept);
  if (request.path == "/state") return {.type = "application/json", .body = snapshot_json(source_.model)};
  if (request.path == "/report")
    return file("text/html; charset=utf-8", "ddprun-report.html", report_page({snapshot_json(source_.model)}));
  if (request.path == "/trace") return file("application/json", "ddprun-trace.json", trace_json(source_.model.view()));
  return {.status = 404, .body = "there is nothing at this path\n"};
}

HttpAnswer ViewServer::metrics(const std::string& accept) const {
  const auto format = metrics_format(accept);
  return {.type = std::string(content_type(format)), .body = metrics_text(source_.model.view(), format)};
}

std::optional<StreamEvent> ViewServer::next(const std::string& last_id) const {
  Version seen = 0;
  if (const auto dash = last_id.find('-'); dash != std::string::npos && last_id.substr(0, dash) == instance_)
    std::from_chars(last_id.data() + dash + 1, last_id.data() + last_id.size(), seen);
  const auto version = source_.model.view().version;
  if (seen == version) return std::nullopt;
  return StreamEvent{.id = fmt::format("{}-{}", instance_, version), .data = changes_json(source_.model, seen)};
}

bool ViewServer::asked() const {
  return watched() || (asked_at_ && Clock::now() - *asked_at_ < asked_lately);
}

void ViewServer::publish() {
  const auto now = Clock::now();
  if (now - published_ < publish_interval) return;
  published_ = now;
  server_->notify();
}

void ViewServer::publish_last() {
  server_->notify_last();
}

}  // namespace ddprun::dashboard
