#include <algorithm>
#include <csignal>
#include <fstream>

#include <boost/json.hpp>

#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

// ddprun status --collectives against running jobs.
namespace ddprun::testing {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A job whose agent registers in a folder of this test.
struct Job {
  TempDir runtime;
  TempDir folder;
  std::string file = (folder / "go-on").string();
  Child agent;

  explicit Job(Words program, const std::string& ranks = "3")
      : agent([&] {
          Words words{DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=" + ranks};
          for (auto& word : program) words.push_back(word == "FILE" ? file : word);
          return Child(words, variables());
        }()) {}

  Variables variables() const { return {{"DDPRUN_RUNTIME_DIR", runtime.path().string()}}; }
  Child::Result ask(Words more = {}) const {
    more.insert(more.begin(), {DDPRUN_PROGRAM, "status", "--collectives"});
    return Child(more, variables()).wait();
  }
  // The only group of the only job; null before there is one.
  boost::json::value group() const {
    const auto result = ask({"--json"});
    if (result.code != 0) return {};  // there are no workers yet
    const auto document = boost::json::parse(result.out);
    const auto& jobs = document.at("jobs").as_array();
    if (jobs.size() != 1 || jobs[0].at("groups").as_array().size() != 1) return {};
    return jobs[0].at("groups").at(0);
  }
  // Repeats the request until the diagnosis contains all parts.
  boost::json::value await_diagnosis(const Words& parts) {
    boost::json::value found;
    agent.wait_until(
        [&] {
          found = group();
          if (!found.is_object()) return false;
          const std::string diagnosis(found.at("diagnosis").as_string());
          return std::all_of(parts.begin(), parts.end(), [&](const auto& part) { return contains(diagnosis, part); });
        },
        "the diagnosis");
    return found;
  }
};

}  // namespace

TEST_CASE("ddprun status --collectives names the rank that has not entered an operation, and its current operation") {
  Job job({STRAGGLER_PROGRAM, "1", "FILE"});
  const auto group = job.await_diagnosis({"operation #1, ", "; 2 ranks wait in it, for up to "});
  const auto& straggler = group.at("ranks").at(1);
  const auto pid = straggler.at("pid").as_int64();
  INFO(boost::json::serialize(group));
  CHECK(group.at("name").as_string() == "group/0");
  const std::string diagnosis(group.at("diagnosis").as_string());
  CHECK(contains(diagnosis, "operation #1, allreduce(sum) of 1000 float32: rank 1 (pid " + std::to_string(pid)));
  CHECK(contains(diagnosis, "it is between operations; its last, #0, barrier, ended "));
  CHECK(contains(diagnosis, ") has not entered it: "));
  CHECK_FALSE(straggler.at("inside").as_bool());
  CHECK(group.at("ranks").at(0).at("inside").as_bool());
  const auto& waiting = group.at("ranks").at(0).at("operations").as_array().back();
  CHECK(waiting.at("state").as_string() == "started");
  CHECK(waiting.at("bytes").as_int64() == 4000);

  REQUIRE(::kill(static_cast<pid_t>(pid), SIGSTOP) == 0);
  job.await_diagnosis({"its process: frozen by SIGSTOP for "});
  const auto text = job.ask();
  CHECK(text.code == 0);
  CHECK(contains(text.out, "#1 allreduce(sum) of 1000 float32"));
  CHECK(contains(text.out, "outside"));
  REQUIRE(::kill(static_cast<pid_t>(pid), SIGCONT) == 0);

  std::ofstream(job.file).put('\n');
  CHECK(job.agent.wait().code == 0);
}

TEST_CASE("ddprun status --collectives shows a group with a key prefix that the program chose") {
  Job job({STRAGGLER_PROGRAM, "2", "FILE", "mine/"});
  const auto group =
      job.await_diagnosis({"operation #1, allreduce(sum) of 1000 float32: rank 2 (pid ", "; 2 ranks wait"});
  CHECK(group.at("name").as_string() == "mine/generation/1/group/0");
  std::ofstream(job.file).put('\n');
  CHECK(job.agent.wait().code == 0);
}

TEST_CASE("ddprun status --collectives says so if no worker reports a group") {
  Job job({VICTIM_PROGRAM, "pause"}, "1");
  Child::Result result;
  job.agent.wait_until(
      [&] {
        result = job.ask();
        return contains(result.out, "generation 0\n");
      },
      "the running job");
  CHECK(contains(result.out, "no worker reports a process group"));
  job.agent.signal(SIGTERM);
  job.agent.wait();
}

}  // namespace ddprun::testing
