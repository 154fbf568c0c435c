#include "ddprun/launcher/report/events.h"

#include <algorithm>

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "ddprun/common/atomic_file.h"
#include "ddprun/common/error.h"

namespace ddprun {
namespace {

namespace json = boost::json;

// The error file's text, or what torchrun has where there is none.
std::string raw_error(const WorkerStatus& worker) {
  try {
    auto text = read_whole_file(worker.error_file);
    boost::system::error_code failure;
    json::parse(text, failure);
    if (!failure) return text;
  } catch (const Error&) {
    // most workers that fail write none
  }
  return R"({"message": "<NONE>"})";
}

json::value exit_code(const WorkerStatus& worker) {
  if (!worker.exit) return nullptr;
  return worker.exit->signal_number != 0 ? -worker.exit->signal_number : worker.exit->code;
}

}  // namespace

EventTeller::EventTeller(EventFacts facts, Clock clock, Sink sink)
    : facts_(std::move(facts)), clock_(std::move(clock)), sink_(std::move(sink)), began_(clock_()) {}

void EventTeller::joining() {
  waiting_since_ = clock_();
  tell({.what = "join", .node_state = "INIT", .message = "this node joins job " + facts_.run_id});
}

void EventTeller::on(const RendezvousEvent& event) {
  std::visit([this](const auto& e) { on_event(e); }, event);
}

void EventTeller::on_event(const RendezvousWaiting& event) {
  tell({.what = "waiting", .node_state = "RUNNING", .message = event.text});
}

void EventTeller::on_event(const RoundProposed& event) {
  proposed_at_ = clock_();
  tell({.what = "proposed", .node_state = "RUNNING", .message = event.reason});
}

void EventTeller::on_event(const RoundStarted& event) {
  round_ = event.round;
  // A round may be agreed while workers of the one before are still being stopped.
  const auto agreed = std::max(proposed_at_, waiting_since_);
  tell_agent("RENDEZVOUS", agreed - waiting_since_);
  tell_agent("ASSIGN_WORKER_RANKS", clock_() - agreed);
  const auto message = fmt::format("round {} of {} nodes", round_.generation, round_.members.size());
  tell({.what = "complete", .node_state = "SUCCEEDED", .message = message, .of_round = true});
}

void EventTeller::on_event(const JobEnded& event) {
  const auto& verdict = event.verdict;
  tell({.what = "closed", .node_state = verdict.success ? "SUCCEEDED" : "FAILED", .message = verdict.reason});
}

void EventTeller::on_event(const ContactBroken& event) {
  tell({.what = "broken", .node_state = "RUNNING", .message = event.text});
}

void EventTeller::on_event(const ContactLost& event) {
  tell({.what = "lost", .node_state = "FAILED", .message = "the rendezvous is lost", .error = event.error.what()});
}

void EventTeller::tell(const RendezvousNews& event) {
  json::object line{{"name", std::string("rendezvous.") + event.what},
                    {"run_id", facts_.run_id},
                    {"message", event.message},
                    {"hostname", facts_.host},
                    {"pid", facts_.pid},
                    {"node_state", event.node_state}};
  line["master_endpoint"] = event.of_round ? fmt::format("{}:{}", round_.master_addr, round_.master_port) : "";
  line["rank"] = event.of_round ? json::value(round_.self) : json::value(nullptr);
  line["local_id"] = nullptr;
  line["error_trace"] = event.error;
  sink_(json::serialize(line));
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
                        {"metadata", json::serialize(nested)},
                        {"agent_restarts", round.restarts_used},
                        {"duration_ms", event.duration_ms}};
  return json::serialize(json::object{{"name", std::string("torchelastic.worker.status.") + event.state},
                                      {"source", event.source},
                                      {"timestamp", now.count()},
                                      {"metadata", std::move(metadata)}});
}

}  // namespace

void EventTeller::tell_agent(const char* state, std::optional<std::chrono::milliseconds> duration) {
  StatusEvent event{.state = state, .source = "AGENT"};
  if (duration) event.duration_ms = duration->count();
  sink_(status_line(facts_, round_, clock_(), began_, event));
}

void EventTeller::tell_worker(const char* state, const WorkerStatus& worker) {
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

void EventTeller::workers_started(const std::vector<WorkerStatus>& workers) {
  for (const auto& worker : workers) tell_worker("START", worker);
}

void EventTeller::workers_ended(const std::vector<WorkerStatus>& workers) {
  waiting_since_ = clock_();
  for (const auto& worker : workers) {
    const bool success = worker.exit && worker.exit->success();
    tell_worker(worker.failed ? "FAILED" : success ? "SUCCEEDED" : "TERMINATED", worker);
  }
}

void EventTeller::agent_ended(bool success) {
  tell_agent(success ? "SUCCEEDED" : "FAILED", std::nullopt);
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
