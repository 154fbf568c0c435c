#include "launcher/report/events.h"

#include <fstream>

#include <boost/json.hpp>

#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
namespace json = boost::json;

namespace {

struct EventLog {
  std::chrono::milliseconds now{1'700'000'000'000};
  std::vector<std::string> lines;
  EventReporter reporter{
      {.run_id = "job", .role = "r", .host = "h", .backend = "c10d", .program = "train.py", .pid = 7},
      [this] { return now; },
      [this](std::string line) { lines.push_back(std::move(line)); }};

  json::object last() const { return json::parse(lines.back()).as_object(); }
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& line : lines) result.emplace_back(json::parse(line).at("name").as_string());
    return result;
  }
};

Round round_of_two() {
  Round round{.generation = 2, .restarts_used = 1, .self = 1, .world_size = 4, .master_addr = "a", .master_port = 5};
  round.members = {{.group_rank = 0, .nproc = 2}, {.group_rank = 1, .nproc = 2, .first_rank = 2}};
  return round;
}

}  // namespace

TEST_CASE("a round is reported with the time until it was agreed and until all nodes were ready") {
  EventLog log;
  log.reporter.joining();
  log.now += std::chrono::milliseconds(30);
  log.reporter.on(RoundProposed{.round = round_of_two(), .reason = "first round"});
  log.now += std::chrono::milliseconds(5);
  log.reporter.on(RoundStarted{.round = round_of_two()});
  CHECK(log.names() ==
        std::vector<std::string>{"rendezvous.join", "rendezvous.proposed", "torchelastic.worker.status.RENDEZVOUS",
                                 "torchelastic.worker.status.ASSIGN_WORKER_RANKS", "rendezvous.complete"});
  CHECK(log.lines[0] == R"({"name":"rendezvous.join","run_id":"job","message":"this node joins job job",)"
                        R"("hostname":"h","pid":7,"node_state":"INIT","master_endpoint":"","rank":null,)"
                        R"("local_id":null,"error_trace":""})");
  CHECK(log.lines[2] ==
        R"({"name":"torchelastic.worker.status.RENDEZVOUS","source":"AGENT","timestamp":1700000000035,"metadata":)"
        R"({"run_id":"job","global_rank":null,"group_rank":1,"worker_id":null,"role":"r","hostname":"h",)"
        R"("state":"RENDEZVOUS","total_run_time":0,"rdzv_backend":"c10d","raw_error":null,)"
        R"("metadata":"{\"group_world_size\":2,\"entry_point\":\"train.py\"}","agent_restarts":1,"duration_ms":30}})");
  CHECK(json::parse(log.lines[3]).at("metadata").at("duration_ms") == 5);
  CHECK(log.last().at("master_endpoint") == "a:5");
  CHECK(log.last().at("rank") == 1);
  CHECK(log.last().at("node_state") == "SUCCEEDED");
}

TEST_CASE("a round that is agreed while workers are stopping has a rendezvous time of zero") {
  EventLog log;
  log.reporter.on(RoundStarted{.round = round_of_two()});
  log.now += std::chrono::milliseconds(100);
  log.reporter.on(RoundProposed{.round = round_of_two(), .reason = "restart"});
  log.now += std::chrono::milliseconds(40);
  log.reporter.workers_ended({});
  log.now += std::chrono::milliseconds(3);
  log.lines.clear();
  log.reporter.on(RoundStarted{.round = round_of_two()});
  CHECK(json::parse(log.lines[0]).at("metadata").at("duration_ms") == 0);
  CHECK(json::parse(log.lines[1]).at("metadata").at("duration_ms") == 3);
}

TEST_CASE("workers are reported by how they ended") {
  const testing::TempDir folder;
  std::ofstream(folder / "e") << R"({"message": "boom"})";
  EventLog log;
  log.reporter.on(RoundStarted{.round = round_of_two()});
  log.lines.clear();
  log.reporter.workers_started({{.local_rank = 0, .pid = 50}, {.local_rank = 1, .pid = 51}});
  log.now += std::chrono::milliseconds(2500);
  log.reporter.workers_ended(
      {{.local_rank = 0, .pid = 50, .exit = ProcessExit{.pid = 50}},
       {.local_rank = 1,
        .pid = 51,
        .exit = ProcessExit{.pid = 51, .code = 3},
        .failed = true,
        .error_file = (folder / "e").string()},
       {.local_rank = 1, .pid = 52, .exit = ProcessExit{.pid = 52, .signal_number = 15}},
       {.local_rank = 1, .pid = 53, .exit = ProcessExit{.pid = 53, .signal_number = 9}, .failed = true}});
  const std::string prefix = "torchelastic.worker.status.";
  CHECK(log.names() == std::vector<std::string>{prefix + "START", prefix + "START", prefix + "SUCCEEDED",
                                                prefix + "FAILED", prefix + "TERMINATED", prefix + "FAILED"});
  const auto failed = json::parse(log.lines[3]);
  CHECK(failed.at("source") == "WORKER");
  const auto& metadata = failed.at("metadata");
  CHECK(metadata.at("global_rank") == 3);
  CHECK(metadata.at("worker_id") == "51");
  CHECK(metadata.at("total_run_time") == 2);
  CHECK(metadata.at("raw_error") == R"({"message": "boom"})");
  const auto nested = json::parse(metadata.at("metadata").as_string());
  CHECK(nested == json::parse(R"({"group_world_size": 2, "entry_point": "train.py", "local_rank": [1],
    "role_rank": [3], "role_world_size": [4], "exit_code": [3], "worker_pid": [51]})"));
  const auto killed = json::parse(log.lines[5]).at("metadata");
  CHECK(killed.at("raw_error") == R"({"message": "<NONE>"})");
  CHECK(json::parse(killed.at("metadata").as_string()).at("exit_code") == json::array({-9}));
}

TEST_CASE("a worker that is replaced has an end of its own, and the round goes on with the restarts used") {
  EventLog log;
  log.reporter.on(RoundProposed{.round = round_of_two(), .reason = "first round"});
  log.reporter.on(RoundStarted{.round = round_of_two()});
  log.lines.clear();
  log.reporter.workers_replaced(
      {{.local_rank = 1, .pid = 51, .exit = ProcessExit{.pid = 51, .signal_number = 9}, .failed = true}}, 2);
  log.reporter.workers_started({{.local_rank = 1, .pid = 77}});
  CHECK(log.names() ==
        std::vector<std::string>{"torchelastic.worker.status.FAILED", "torchelastic.worker.status.START"});
  const auto failed = json::parse(log.lines[0]).at("metadata");
  CHECK(failed.at("worker_id") == "51");
  CHECK(failed.at("global_rank") == 3);
  CHECK(log.last().at("metadata").at("worker_id") == "77");
  CHECK(log.last().at("metadata").at("agent_restarts") == 2);
}

TEST_CASE("the end of the job and the loss of the rendezvous are reported") {
  EventLog log;
  log.reporter.on(RendezvousWaiting{.text = "waiting for 1 node"});
  CHECK(log.last().at("message") == "waiting for 1 node");
  log.reporter.on(ContactBroken{.text = "trying again"});
  CHECK(log.last().at("name") == "rendezvous.broken");
  CHECK(log.last().at("message") == "trying again");
  log.reporter.on(JobEnded{.result = {.success = false, .exit_code = 1, .reason = "why"}});
  CHECK(log.last().at("node_state") == "FAILED");
  CHECK(log.last().at("message") == "why");
  log.reporter.on(ContactLost{Error(Errc::connection_lost, "gone")});
  CHECK(log.last().at("error_trace") == "gone");
  log.reporter.agent_ended(false);
  CHECK(log.last().at("name") == "torchelastic.worker.status.FAILED");
  CHECK(log.last().at("source") == "AGENT");
}

TEST_CASE("the event target is none, the console or a file") {
  CHECK(parse_event_target("null").kind == EventTarget::Kind::none);
  CHECK(parse_event_target("console").kind == EventTarget::Kind::console);
  CHECK(parse_event_target("file:/a/b").path == "/a/b");
  for (const char* bad : {"", "file:", "File:/a", "syslog"}) {
    INFO(bad);
    CHECK_THROWS_AS(parse_event_target(bad), Error);
  }
}
