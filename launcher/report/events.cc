#include "launcher/report/events.h"

#include <algorithm>

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "common/bounded_file.h"
#include "common/error.h"
#include "common/printable.h"
#include "launcher/report/failure_report.h"

namespace ddprun {
namespace {

namespace json = boost::json;

// The content of the error file, or torchrun's placeholder without one.
std::string raw_error(const WorkerStatus& worker) {
  try {
    auto text = read_regular_file(worker.error_file, largest_error_file);
    boost::system::error_code failure;
    json::parse(text, failure);
    if (!failure) return text;
  } catch (const Error&) {
    // most failed workers write none
  }
  return R"({"message": "<NONE>"})";
}

json::value exit_code(const WorkerStatus& worker) {
  if (!worker.exit) return nullptr;
  return worker.exit->signal_number != 0 ? -worker.exit->signal_number : worker.exit->code;
}

}  // namespace

EventReporter::EventReporter(EventFacts facts, Clock clock, Sink sink)
    : facts_(std::move(facts)), clock_(std::move(clock)), sink_(std::move(sink)), began_(clock_()) {}

void EventReporter::joining() {
  waiting_since_ = clock_();
  report({.name = "join", .node_state = "INIT", .message = "this node joins job " + facts_.run_id});
}

void EventReporter::on(const RendezvousEvent& event) {
  std::visit([this](const auto& e) { on_event(e); }, event);
}

void EventReporter::on_event(const RendezvousWaiting& event) {
  report({.name = "waiting", .node_state = "RUNNING", .message = event.text});
}

void EventReporter::on_event(const RoundProposed& event) {
  proposed_at_ = clock_();
  report({.name = "proposed", .node_state = "RUNNING", .message = event.reason});
}

void EventReporter::on_event(const RoundStarted& event) {
  round_ = event.round;
  // A round may be agreed while workers of the previous one are still stopping.
  const auto agreed = std::max(proposed_at_, waiting_since_);
  report_agent("RENDEZVOUS", agreed - waiting_since_);
  report_agent("ASSIGN_WORKER_RANKS", clock_() - agreed);
  const auto message = fmt::format("round {} of {} nodes", round_.generation, round_.members.size());
  report({.name = "complete", .node_state = "SUCCEEDED", .message = message, .of_round = true});
}

void EventReporter::on_event(const RoundChanged& event) {
  round_ = event.round;
  report({.name = "changed", .node_state = "RUNNING", .message = event.reason, .of_round = true});
}

void EventReporter::on_event(const JobEnded& event) {
  const auto& result = event.result;
  report({.name = "closed", .node_state = result.success ? "SUCCEEDED" : "FAILED", .message = result.reason});
}

void EventReporter::on_event(const ContactBroken& event) {
  report({.name = "broken", .node_state = "RUNNING", .message = event.text});
}

void EventReporter::on_event(const RoundResumed& event) {
  report({.name = "resumed",
          .node_state = "RUNNING",
          .message = fmt::format("round {} goes on", event.generation),
          .of_round = true});
}

void EventReporter::on_event(const ContactLost& event) {
  report({.name = "lost", .node_state = "FAILED", .message = "the rendezvous is lost", .error = event.error.what()});
}

void EventReporter::report(const RendezvousRecord& event) {
  json::object line{{"name", std::string("rendezvous.") + event.name},
                    {"run_id", facts_.run_id},
                    {"message", event.message},
                    {"hostname", facts_.host},
                    {"pid", facts_.pid},
                    {"node_state", event.node_state}};
  line["master_endpoint"] = event.of_round ? fmt::format("{}:{}", round_.master_addr, round_.master_port) : "";
  line["rank"] = event.of_round ? json::value(round_.self) : json::value(nullptr);
  line["local_id"] = nullptr;
  line["error_trace"] = event.error;
  sink_(valid_json(json::serialize(line)));
}

namespace {

struct StatusEvent {
  const char* state;
  const char* source;
  json::value global_rank = nullptr;
  json::value worker_id = nullptr;
  json::value raw_error = nullptr;
  json::value duration_ms = nullptr;
  json::object nested;
};

std::string status_line(const EventFacts& facts, const Round& round, std::chrono::milliseconds now,
                        std::chrono::milliseconds began, const StatusEvent& event) {
  json::object nested{{"group_world_size", round.members.size()}, {"entry_point", facts.program}};
  for (const auto& [name, value] : event.nested) nested[name] = value;
  const auto run_time = std::chrono::duration_cast<std::chrono::seconds>(now - began).count();
  json::object metadata{{"run_id", facts.run_id},
                        {"global_rank", event.global_rank},
                        {"group_rank", round.self},
                        {"worker_id", event.worker_id},
                        {"role", facts.role},
                        {"hostname", facts.host},
                        {"state", event.state},
                        {"total_run_time", run_time},
                        {"rdzv_backend", facts.backend},
                        {"raw_error", event.raw_error},
                        {"metadata", valid_json(json::serialize(nested))},
                        {"agent_restarts", round.restarts_used},
                        {"duration_ms", event.duration_ms}};
  return valid_json(json::serialize(json::object{{"name", std::string("torchelastic.worker.status.") + event.state},
                                                 {"source", event.source},
                                                 {"timestamp", now.count()},
                                                 {"metadata", std::move(metadata)}}));
}

}  // namespace

void EventReporter::report_agent(const char* state, std::optional<std::chrono::milliseconds> duration) {
  StatusEvent event{.state = state, .source = "AGENT"};
  if (duration) event.duration_ms = duration->count();
  sink_(status_line(facts_, round_, clock_(), began_, event));
}

void EventReporter::report_worker(const char* state, const WorkerStatus& worker) {
  const int rank = round_.members.at(static_cast<std::size_t>(round_.self)).first_rank + worker.local_rank;
  StatusEvent event{.state = state, .source = "WORKER", .global_rank = rank};
  event.worker_id = json::string(std::to_string(worker.pid));
  if (worker.failed) event.raw_error = json::string(raw_error(worker));
  event.nested = {{"local_rank", json::array{worker.local_rank}},
                  {"role_rank", json::array{rank}},
                  {"role_world_size", json::array{round_.world_size}},
                  {"exit_code", json::array{exit_code(worker)}},
                  {"worker_pid", json::array{worker.pid}}};
  sink_(status_line(facts_, round_, clock_(), began_, event));
}

void EventReporter::workers_started(const std::vector<WorkerStatus>& workers) {
  for (const auto& worker : workers) report_worker("START", worker);
}

void EventReporter::workers_ended(const std::vector<WorkerStatus>& workers) {
  waiting_since_ = clock_();
  report_ends(workers);
}

void EventReporter::workers_replaced(const std::vector<WorkerStatus>& failed, int restarts_used) {
  report_ends(failed);
  round_.restarts_used = restarts_used;
}

void EventReporter::report_ends(const std::vector<WorkerStatus>& workers) {
  for (const auto& worker : workers) {
    const bool success = worker.exit && worker.exit->success();
    report_worker(worker.failed ? "FAILED" : success ? "SUCCEEDED" : "TERMINATED", worker);
  }
}

void EventReporter::agent_ended(bool success) {
  report_agent(success ? "SUCCEEDED" : "FAILED", std::nullopt);
}

EventTarget parse_event_target(const std::string& text) {
  constexpr std::string_view file = "file:";
  if (text == "null") return {};
  if (text == "console") return {.kind = EventTarget::Kind::console};
  if (text.starts_with(file) && text.size() > file.size())
    return {.kind = EventTarget::Kind::file, .path = text.substr(file.size())};
  throw make_error(Errc::usage, "--event_log_handler = {}: expected null, console or file:PATH", text);
}

}  // namespace ddprun
