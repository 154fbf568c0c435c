#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/ssh_hosts.h"
#include "tests/support/temp_dir.h"

// ddprun --hosts with two hosts, each with a real sshd.
using namespace ddprun::testing;

namespace {

void need_hosts() {
  if (const auto why = SshHosts::why_not(); !why.empty()) SKIP(why);
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

struct TwoHosts {
  SshHosts ssh{2};
  Marker marker;
  std::string first = ssh.address(1);
  std::string second = ssh.address(2);

  Words words(Words options, const Words& verbs) const {
    options.insert(options.begin(), {"--hosts=" + first + ":2," + second + ":2", "--ssh=" + ssh.ssh()});
    return ssh.at_user(command(options, verbs));
  }
  Variables variables(Variables more = {}) const {
    for (const auto& [name, value] : marker.variables()) more[name] = value;
    return more;
  }
  Child::Result finish(const Words& options, const Words& verbs, const Variables& more = {}) const {
    return Child(words(options, verbs), variables(more)).wait(std::chrono::seconds(60));
  }
  std::unique_ptr<Child> start(const Words& options, const Words& verbs) const {
    return std::make_unique<Child>(words(options, verbs), variables());
  }
};

// The job's processes with this name whose command line contains a word.
std::vector<pid_t> processes(const Marker& marker, const std::string& name, const std::string& word = "") {
  std::vector<pid_t> found;
  for (const pid_t pid : marker.pids())
    if (proc_text(std::to_string(pid), "comm") == name + "\n" &&
        proc_text(std::to_string(pid), "cmdline").find(word) != std::string::npos)
      found.push_back(pid);
  return found;
}

void kill_connection_to(const std::string& host, const Marker& marker) {
  const auto connection = processes(marker, "ssh", host + std::string(1, '\0'));
  REQUIRE(connection.size() == 1);
  ::kill(connection.front(), SIGKILL);
}

void wait_for_workers(Child& job, const TwoHosts& two) {
  job.wait_until([&] { return processes(two.marker, "ddprun-victim").size() >= 4; }, "four workers",
                 std::chrono::seconds(60));
}

void wait_for_nothing_left(Child& job, const TwoHosts& two) {
  job.wait_until([&] { return two.marker.processes() == 0; }, "end of all that was started", std::chrono::seconds(60));
}

}  // namespace

TEST_CASE(
    "option --hosts starts an agent on each host by ssh, ranks follow the list, and lines have the host as prefix") {
  need_hosts();
  const TwoHosts two;
  const auto job = two.finish({"--env=ddprun_mine,ddprun_other=o"}, {"env", "out=a 'b' \"c\" $d\\n"},
                              {{"OMP_NUM_THREADS", "3"}, {"ddprun_mine", "two words"}, {"ddprun_not_named", "x"}});
  INFO(job.out << job.err);
  REQUIRE(job.code == 0);
  for (int rank = 0; rank < 4; ++rank) {
    const auto prefix = "[" + (rank < 2 ? two.first : two.second) + "] [default" + std::to_string(rank % 2) + "]:";
    CHECK(count(job.out, prefix + "RANK=" + std::to_string(rank) + "\n") == 1);
    CHECK(count(job.out, prefix + "a 'b' \"c\" $d\n") == 1);
  }
  CHECK(count(job.out, ":WORLD_SIZE=4\n") == 4);
  CHECK(count(job.out, ":MASTER_ADDR=" + two.first + "\n") == 4);
  CHECK(count(job.out, ":OMP_NUM_THREADS=3\n") == 4);
  CHECK(count(job.out, ":ddprun_mine=two words\n") == 4);
  CHECK(count(job.out, ":ddprun_other=o\n") == 4);
  CHECK(count(job.out, "ddprun_not_named") == 0);
}

TEST_CASE("agents on hosts run in the starter's working directory, and report if it does not exist") {
  need_hosts();
  const TwoHosts two;
  const TempDir folder;
  Words words{"/usr/bin/env", "-C", folder.path().string()};
  for (const auto& word : two.words({}, {"touch=made-on-${local_rank}", "env"})) words.push_back(word);
  const auto job = Child(words, two.variables()).wait(std::chrono::seconds(60));
  INFO(job.out << job.err);
  CHECK(job.code == 0);
  CHECK(std::filesystem::exists(folder / "made-on-1"));
  CHECK(count(job.out, ":PWD=" + folder.path().string() + "\n") == 4);

  // A folder that exists only on the starting machine.
  const auto inside = "mount -t tmpfs none $0 && mkdir $0/x && cd $0/x && exec \"$@\"";
  Words alone{"/usr/bin/unshare", "--mount", "sh", "-c", inside, folder.path().string()};
  for (const auto& word : two.words({}, {"env"})) alone.push_back(word);
  const auto nowhere = Child(alone, two.variables()).wait(std::chrono::seconds(60));
  INFO(nowhere.out << nowhere.err);
  CHECK(nowhere.code == 1);
  const auto error = " [ddprun] error: cannot change into the folder " + folder.path().string() + "/x: No such file";
  CHECK(count(nowhere.err, "[" + two.first + "]" + error) == 1);
}

TEST_CASE("the exit code of a job on hosts is the root cause's, also if it equals that of ssh's errors") {
  need_hosts();
  const TwoHosts two;
  for (const auto* code : {"7", "255"}) {
    const auto job = two.finish({}, {"if-rank=3", std::string("exit=") + code, "end-if", "pause"});
    INFO(job.out << job.err);
    CHECK(job.code == std::stoi(code));
    CHECK(count(job.err, "lost contact") == 0);
    CHECK(count(job.err, "\nRoot Cause (first observed failure):\n") == 1);
  }
  CHECK(two.marker.processes() == 0);
}

TEST_CASE("a host that cannot be reached ends the job with one line that has its name and ssh's last line") {
  need_hosts();
  const TwoHosts two;
  const auto nobody = two.ssh.address(0);
  const auto hosts = "--hosts=" + two.first + "," + nobody;
  const auto job =
      Child(two.ssh.at_user(command({hosts, "--ssh=" + two.ssh.ssh()}, {"pause"})), two.variables()).wait();
  INFO(job.out << job.err);
  CHECK(job.code == 1);
  CHECK(count(job.err, "cannot start ddprun on host " + nobody + ": ssh: connect to host " + nobody +
                           " port 22: Connection refused") == 1);
  CHECK(two.marker.processes() == 0);
}

TEST_CASE("a signal to the starting ddprun stops the workers on all hosts, a second one kills them") {
  need_hosts();
  const TwoHosts two;
  const auto job = two.start({"--shutdown_timeout=600"}, {"answer=15", "out=ready\\n", "pause"});
  job->wait_until([&] { return count(job->out(), "ready") == 4; }, "four workers", std::chrono::seconds(60));
  job->signal(SIGTERM);
  auto result = job->wait();
  INFO(result.out << result.err);
  CHECK(result.signal_number == 0);
  CHECK(result.code == 128 + SIGTERM);
  CHECK(count(result.out, "got 15") == 4);

  const auto deaf = two.start({"--shutdown_timeout=600"}, {"ignore=15", "out=ready\\n", "pause"});
  deaf->wait_until([&] { return count(deaf->out(), "ready") == 4; }, "four workers", std::chrono::seconds(60));
  deaf->signal(SIGTERM);
  deaf->wait_until([&] { return count(deaf->err(), "stopped by SIGTERM") == 2; }, "the messages of both agents");
  deaf->signal(SIGTERM);
  CHECK(deaf->wait().code == 128 + SIGTERM);
  CHECK(two.marker.processes() == 0);
}

TEST_CASE("SIGKILL of the starting ddprun ends all processes on the hosts, although sshd ends no command by itself") {
  need_hosts();
  const TwoHosts two;
  const auto job = two.start({"--shutdown_timeout=1"}, {"ignore=15", "fork=stubborn", "pause"});
  const auto running_on = [&](int host, const std::string& name) {
    const auto all = two.ssh.processes(host);
    return std::count_if(all.begin(), all.end(),
                         [&](pid_t pid) { return proc_text(std::to_string(pid), "comm") == name + "\n"; });
  };
  for (const int host : {1, 2})
    job->wait_until([&] { return running_on(host, "ddprun-victim") == 4; }, "two workers and their children",
                    std::chrono::seconds(60));
  for (const int host : {1, 2}) REQUIRE(running_on(host, "ddprun") >= 1);
  job->signal(SIGKILL);
  for (const int host : {1, 2})
    job->wait_until([&] { return two.ssh.processes(host).empty(); }, "end of agent, workers, children and ssh session",
                    std::chrono::seconds(60));
  CHECK(two.marker.processes() == 0);
}

TEST_CASE("a lost connection ends that host's agent and a job with a fixed number of nodes") {
  need_hosts();
  const TwoHosts two;
  const auto job = two.start({"--shutdown_timeout=1"}, {"pause"});
  wait_for_workers(*job, two);
  kill_connection_to(two.second, two.marker);
  const auto result = job->wait(std::chrono::seconds(60));
  INFO(result.out << result.err);
  CHECK(result.code == 1);
  CHECK(count(result.err, "lost contact with host " + two.second) == 1);
  wait_for_nothing_left(*job, two);
}

// This closes no connection: the rendezvous server misses heartbeats, and ssh its keep-alive messages.
TEST_CASE("a host whose link goes down ends a job of fixed size with a line that names it") {
  need_hosts();
  TwoHosts two;
  const auto job = two.start({"--shutdown_timeout=1"}, {"pause"});
  wait_for_workers(*job, two);
  two.ssh.network().link_down(2);
  const auto result = job->wait(std::chrono::seconds(90));
  INFO(result.out << result.err);
  CHECK(result.code == 1);
  CHECK(count(result.err, "no heartbeat for 5 s, frozen or cut off (ranks 2-3)") == 1);
  CHECK(count(result.err, "lost contact with host " + two.second) == 1);
  wait_for_nothing_left(*job, two);  // also on the disconnected host, whose agent has lost the server
}

TEST_CASE("an elastic job continues without a host whose link goes down") {
  need_hosts();
  TwoHosts two;
  const auto job = two.start({"--nnodes=1:2", "--shutdown_timeout=1", "--rdzv_conf=last_call_timeout=1"},
                             {"if-attempt=0", "pause", "end-if", "env"});
  wait_for_workers(*job, two);
  two.ssh.network().link_down(2);
  const auto result = job->wait(std::chrono::seconds(90));
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  CHECK(count(result.out, ":WORLD_SIZE=2\n") == 2);
  CHECK(count(result.err, "lost contact with host " + two.second) == 1);
}

TEST_CASE("the starting ddprun's error file has the root cause of a failure on any host") {
  need_hosts();
  const TwoHosts two;
  const TempDir folder;
  const auto path = folder / "error.json";
  const std::string rank = GENERATE("0", "3");
  const auto job = two.finish(
      {}, {"if-rank=" + rank, "error-file={\"message\": {\"message\": \"boom\"}}", "exit=7", "end-if", "pause"},
      {{"TORCHELASTIC_ERROR_FILE", path.string()}});
  INFO(job.out << job.err);
  CHECK(job.code == 7);
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  CHECK_THAT(text, Catch::Contains("boom") && Catch::Contains("\"errorCode\":7"));
}

TEST_CASE("an elastic job continues without a lost host") {
  need_hosts();
  const TwoHosts two;
  const auto job = two.start({"--nnodes=1:2", "--shutdown_timeout=1", "--rdzv_conf=last_call_timeout=1"},
                             {"if-attempt=0", "pause", "end-if", "env"});
  wait_for_workers(*job, two);
  kill_connection_to(two.second, two.marker);
  const auto result = job->wait(std::chrono::seconds(60));
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  CHECK(count(result.out, ":WORLD_SIZE=2\n") == 2);
  CHECK(count(result.err, "lost contact with host " + two.second) == 1);
  wait_for_nothing_left(*job, two);
}
