#include <algorithm>
#include <csignal>
#include <fstream>
#include <sys/stat.h>

#include <boost/json.hpp>

#include "common/atomic_file.h"
#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun::testing;
namespace json = boost::json;

namespace {

constexpr const char* status = "torchelastic.worker.status.";

// The names of the events; those of worker status as "<state> <source>".
Words names_in(const std::string& text) {
  Words names;
  for (const auto& line : lines_of(text)) {
    if (!line.starts_with("{\"name\"")) continue;
    const auto event = json::parse(line).as_object();
    std::string name(event.at("name").as_string());
    if (name.starts_with(status))
      name = name.substr(std::string(status).size()) + " " + std::string(event.at("source").as_string());
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace

TEST_CASE("the events of a job, including a restart, are written to a file") {
  const TempDir folder;
  const auto log = (folder / "events").string();
  const auto result = run_child(command(two_workers({"--max_restarts=1", "--event_log_handler=file:" + log}),
                                        {"if-attempt=0", "if-rank=1", "exit=7", "end-if", "if-attempt=0", "pause"}));
  CHECK(result.code == 0);
  auto names = names_in(ddprun::read_whole_file(log));
  CHECK(names.front() == "rendezvous.join");
  CHECK(std::count(names.begin(), names.end(), "rendezvous.proposed") == 2);
  CHECK(std::count(names.begin(), names.end(), "rendezvous.complete") == 2);
  // The order of rendezvous events among those of stopping workers depends on timing.
  std::erase_if(names, [](const auto& name) { return name.starts_with("rendezvous."); });
  CHECK(names == Words{"RENDEZVOUS AGENT", "ASSIGN_WORKER_RANKS AGENT", "START WORKER", "START WORKER",
                       "TERMINATED WORKER", "FAILED WORKER", "RENDEZVOUS AGENT", "ASSIGN_WORKER_RANKS AGENT",
                       "START WORKER", "START WORKER", "SUCCEEDED WORKER", "SUCCEEDED WORKER", "SUCCEEDED AGENT"});
}

TEST_CASE("events on the console are whole lines on standard error") {
  const auto result = run_child(command(two_workers({"--event-log-handler", "console"}), {"exit=0"}));
  CHECK(result.code == 0);
  CHECK(result.out.empty());
  const auto names = names_in(result.err);
  CHECK(std::count(names.begin(), names.end(), "SUCCEEDED WORKER") == 2);
  CHECK(names.back() == "SUCCEEDED AGENT");
}

TEST_CASE("an event log that cannot be opened is an error before any worker runs") {
  const auto result = run_child(command({"--event_log_handler=file:/nonexistent/e"}, {"out=ran"}));
  CHECK(result.code == 1);
  CHECK(result.out.empty());
  CHECK(result.err == "[ddprun] error: cannot open the event log /nonexistent/e: No such file or directory\n");
}

TEST_CASE("an event log that is a FIFO without a reader is an error") {
  const TempDir folder;
  const auto fifo = (folder / "events").string();
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  const auto result = run_child(command({"--event_log_handler=file:" + fifo}, {}));
  CHECK(result.code == 1);
  CHECK(result.err == "[ddprun] error: cannot open the event log " + fifo + ": no process reads this FIFO\n");
}

TEST_CASE("events are JSON also where the host's name is not UTF-8") {
  if (run_child({"/usr/bin/unshare", "--uts", "/bin/true"}).code != 0)
    SKIP("this machine does not permit to change the host's name");
  const TempDir runtime;
  const auto result = run_child(
      {"/usr/bin/unshare", "--uts", "/bin/sh", "-c", "printf 'h\\377' > /proc/sys/kernel/hostname; exec \"$@\"", "sh",
       DDPRUN_PROGRAM, "--standalone", "--event_log_handler=console", "/bin/sh", "-c", DDPRUN_PROGRAM " status --json"},
      {{"DDPRUN_RUNTIME_DIR", runtime.path().string()}});
  CHECK(result.code == 0);
  CHECK(names_in(result.err).size() > 5);
  CHECK(result.err.find("\"hostname\":\"h\\\\xff\"") != std::string::npos);
  const auto status = json::parse(result.out).as_object();
  CHECK(status.at("jobs").at(0).at("nodes").at(0).at("host").as_string() == "h\\xff");
}
