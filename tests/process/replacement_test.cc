#include <filesystem>
#include <fstream>

#include "rendezvous/recovery/recovery_keys.h"
#include "rendezvous/store/tcp_store.h"
#include "tests/process/launch.h"
#include "tests/process/nodes.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

// Replacements of single workers that are not possible: all workers are restarted instead, as the budget allows.
using namespace ddprun;
using namespace ddprun::testing;
namespace fs = std::filesystem;

namespace {

const Deadline soon = Deadline::in(std::chrono::seconds(60));

// The test, which is no process of the job, uses the workers' store.
const std::string admit_test = "--rdzv_conf=plain_clients=user";

// Two workers, of which rank 1 fails in the first attempt on request. Neither knows how to recover: the test announces
// it for them.
struct Job {
  TempDir folder;
  Marker marker;

  std::string go() const { return (folder / "go").string(); }
  Words verbs(const Words& failure) const {
    Words words{"env", "if-attempt=0", "if-rank=1", "wait-file=" + go()};
    words.insert(words.end(), failure.begin(), failure.end());
    words.insert(words.end(), {"end-if", "if-attempt=0", "pause", "end-if", "out=again\\n"});
    return words;
  }

  void announce_and_fail(Child& job) const {
    job.wait_until([&] { return count(job.out(), "]:WORLD_SIZE=2\n") == 2; }, "both workers");
    const auto port = static_cast<std::uint16_t>(std::stoi(last_value(unprefixed(job.out()), "MASTER_PORT")));
    TcpStore store({.host = "127.0.0.1", .port = port}, soon);
    const RecoveryKeys keys{0};
    for (const int rank : {0, 1}) store.set(keys.able(member_name(rank, 0)), "1", soon);
    std::ofstream(go()).put('\n');
  }

  static int count(const std::string& text, const std::string& part) {
    int found = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  }
  static std::string unprefixed(const std::string& out) {
    std::string text;
    for (const auto& line : lines_of(out)) text += line.substr(line.find(':') + 1) + "\n";
    return text;
  }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a worker that dies while all announce that they can recover gets a replacement") {
  const Job job;
  Child child(command(two_workers({admit_test, "--max_restarts=1"}), job.verbs({"if-replacement=0", "exit=3"})),
              job.marker.variables());
  job.announce_and_fail(child);
  child.wait_for_err("exit code 3; restart 1 of 1: a replacement for this rank alone");
  child.wait_until([&] { return Job::count(child.out(), "DDPRUN_RECOVERY=1\n") == 1; }, "the replacement");
  child.signal(SIGTERM);
  child.wait();
  CHECK(job.marker.processes() == 0);
}

TEST_CASE("a failed worker whose process still runs gets no replacement, all workers are restarted") {
  const Job job;
  Child child(command(two_workers({admit_test, "--max_restarts=1", "--uninterruptible_timeout=0.2"}),
                      job.verbs({"sleep-in-kernel"})),
              job.marker.variables());
  job.announce_and_fail(child);
  const auto result = child.wait();
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(contains(result.err, "rank 1 "));
  CHECK(contains(result.err, " has been in uninterruptible sleep for "));
  CHECK(contains(result.err, "new round: "));
  CHECK_FALSE(contains(result.err, "a replacement for this rank alone"));
  CHECK(Job::count(result.out, "]:again\n") == 2);
  CHECK(job.marker.processes() == 0);
}

TEST_CASE("a replacement that cannot be started is named in a line, and all workers are restarted") {
  const Job job;
  const auto logs = job.folder / "logs";
  Child child(command(two_workers({admit_test, "--max_restarts=2", "--tee=3", "--log_dir=" + logs.string()}),
                      job.verbs({"exit=3"})),
              job.marker.variables());
  child.wait_until([&] { return Job::count(child.out(), "]:WORLD_SIZE=2\n") == 2; }, "the log folder");
  const auto attempt = fs::directory_iterator(logs)->path() / "attempt_0";
  fs::rename(attempt, job.folder / "moved");
  std::ofstream(attempt).put('\n');  // so that the replacement gets no log folder
  job.announce_and_fail(child);
  const auto result = child.wait();
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(contains(result.err, "exit code 3; restart 1 of 2: a replacement for this rank alone"));
  CHECK(Job::count(result.err, "new round: rank 1 (local rank 1) on host ") == 1);
  CHECK(contains(result.err, attempt.string()));
  CHECK(Job::count(result.out, "]:again\n") == 2);
}

TEST_CASE("a program that vanishes before its worker is replaced ends the job within its budget of restarts") {
  const Job job;
  const auto program = job.folder / "victim";
  fs::copy_file(VICTIM_PROGRAM, program);
  Words words{DDPRUN_PROGRAM, "--standalone", admit_test, "--nproc_per_node=2", "--max_restarts=2", program.string()};
  for (const auto& verb : job.verbs({"exit=3"})) words.push_back(verb);
  Child child(words, job.marker.variables());
  child.wait_until([&] { return Job::count(child.out(), "]:WORLD_SIZE=2\n") == 2; }, "both workers");
  fs::remove(program);
  job.announce_and_fail(child);
  const auto result = child.wait();
  INFO(result.err);
  CHECK(result.code == 1);
  CHECK(Job::count(result.err, "a replacement for this rank alone") == 1);
  CHECK(Job::count(result.err, "new round: ") == 1);
  CHECK(contains(result.err, "cannot execute " + program.string()));
  CHECK(contains(result.err, "all 2 restarts used"));
  CHECK(job.marker.processes() == 0);
}
