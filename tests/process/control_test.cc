#include <algorithm>
#include <csignal>
#include <sys/socket.h>
#include <sys/un.h>

#include <boost/json.hpp>

#include "tests/process/launch.h"
#include "tests/process/nodes.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

// ddprun status and ddprun stop against running jobs.
namespace ddprun::testing {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A runtime folder and a marker that only this test uses.
struct Machine {
  TempDir runtime;
  TempDir folder;
  Marker marker;

  Variables variables() const {
    auto variables = marker.variables();
    variables["DDPRUN_RUNTIME_DIR"] = runtime.path().string();
    return variables;
  }
  // Each worker creates a file named after its rank and then executes the verbs.
  Child start(const Words& options, Words verbs = {"pause"}) const {
    verbs.insert(verbs.begin(), "touch=" + (folder / "up-${local_rank}").string());
    return Child(command(options, verbs), variables());
  }
  bool up(int workers) const {
    for (int rank = 0; rank < workers; ++rank)
      if (!std::filesystem::exists(folder / ("up-" + std::to_string(rank)))) return false;
    return true;
  }
  Child::Result ask(Words words) const {
    words.insert(words.begin(), DDPRUN_PROGRAM);
    return Child(words, variables()).wait();
  }
  // Returns the only job there, from --json; null before there is one.
  boost::json::value job(Words options = {}) const {
    options.insert(options.begin(), {"status", "--json"});
    const auto result = ask(options);
    INFO(result.err);
    REQUIRE((result.code == 0 || result.code == 1));
    const auto document = boost::json::parse(result.out);
    const auto& jobs = document.at("jobs").as_array();
    return jobs.size() == 1 ? jobs[0] : boost::json::value();
  }
};

sockaddr_un unix_address(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REQUIRE(path.string().size() < sizeof(address.sun_path));
  path.string().copy(address.sun_path, sizeof(address.sun_path) - 1);
  return address;
}

UniqueFd bound_socket(const std::filesystem::path& path) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = unix_address(path);
  REQUIRE(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  return socket;
}

std::size_t workers_in(const boost::json::value& job) {
  if (!job.is_object()) return 0;
  std::size_t count = 0;
  for (const auto& node : job.at("nodes").as_array()) count += node.at("workers").as_array().size();
  return count;
}

}  // namespace

TEST_CASE("ddprun status shows the job on this machine: round, nodes, workers and their states") {
  const Machine machine;
  auto child =
      machine.start(two_workers({"--rdzv_id=shop", "--max_restarts=3"}), {"if-rank=1", "raise=19", "end-if", "pause"});
  child.wait_until([&] { return machine.up(2) && machine.marker.processes('T') == 1; }, "both workers");
  boost::json::value job;
  child.wait_until(
      [&] {
        job = machine.job({"--rdzv-id=shop"});
        return workers_in(job) == 2 && job.at("nodes").at(0).at("workers").at(1).at("state").as_string() == "stopped";
      },
      "the report of a stopped worker");
  Child left({DDPRUN_PROGRAM, "status"}, machine.variables());
  left.leave_out();  // as with `ddprun status | head -1`
  const auto end = left.wait();
  CHECK((end.signal_number == SIGPIPE || (end.signal_number == 0 && end.code == 0)));
  CHECK(end.err == "");
  CHECK(job.at("run_id").as_string() == "shop");
  CHECK(job.at("phase").as_string() == "running");
  CHECK(job.at("generation").as_int64() == 0);
  CHECK(job.at("max_restarts").as_int64() == 3);
  const auto& worker = job.at("nodes").at(0).at("workers").at(0);
  CHECK(worker.at("state").as_string() == "running");
  const auto pid = static_cast<pid_t>(worker.at("pid").as_int64());
  CHECK(::kill(pid, 0) == 0);

  const auto text = machine.ask({"status"});
  CHECK(contains(text.out, "job shop (ddprun-victim): running for "));
  CHECK(contains(text.out, "0 of 3 restarts used, 1 of 1 node, 2 workers\n"));
  CHECK(contains(text.out, "    rank 0  pid " + std::to_string(pid) + "  running for "));
  CHECK(contains(text.out, "frozen by SIGSTOP for "));
  child.signal(SIGTERM);
  child.wait();
}

TEST_CASE("ddprun status shows a restart") {
  const Machine machine;
  auto child = machine.start(two_workers({"--max_restarts=1"}), {"if-attempt=0", "exit=3", "end-if", "pause"});
  boost::json::value job;
  child.wait_until(
      [&] {
        job = machine.job();
        return job.is_object() && job.at("generation").as_int64() == 1 && workers_in(job) == 2;
      },
      "the second attempt");
  CHECK(job.at("restarts_used").as_int64() == 1);
  child.signal(SIGTERM);
  child.wait();
}

TEST_CASE("ddprun stop ends the job gracefully and waits for it") {
  const Machine machine;
  auto child = machine.start(two_workers(), {"answer=15", "pause"});
  child.wait_until([&] { return machine.up(2) && workers_in(machine.job()) == 2; }, "both workers");
  const auto stopped = machine.ask({"stop"});
  CHECK(stopped.code == 0);
  CHECK(stopped.out == "the job has stopped\n");
  const auto result = child.wait();
  CHECK(result.code == 128 + SIGTERM);
  CHECK(contains(result.err, "stopped by ddprun stop ("));
  CHECK_FALSE(contains(result.err, "FAILED"));
  CHECK(machine.marker.processes() == 0);
  const auto status = machine.ask({"status"});
  CHECK(status.code == 1);
  CHECK(contains(status.err, "no job of this user runs on this machine"));
}

TEST_CASE("with the endpoint a job of two nodes can be queried and stopped from any machine") {
  const Machine machine;
  const Machine elsewhere;  // its runtime folder is another one
  const auto endpoint = "--rdzv_endpoint=127.0.0.1:" + std::to_string(free_port());
  const Words options{"--nnodes=2", endpoint, "--rdzv_id=pair"};
  auto a = machine.start(options);
  auto b = machine.start(options);
  boost::json::value job;
  a.wait_until(
      [&] {
        const auto result = elsewhere.ask({"status", endpoint, "--json"});
        if (result.code != 0) return false;
        const auto jobs = boost::json::parse(result.out).at("jobs").as_array();
        if (!jobs.empty()) job = jobs[0];
        return workers_in(job) == 2;
      },
      "two nodes with a worker each");
  CHECK(job.at("world_size").as_int64() == 2);
  CHECK(job.at("nodes").at(1).at("group_rank").as_int64() == 1);
  const auto wrong = elsewhere.ask({"stop", endpoint, "--rdzv_id=other"});
  CHECK(wrong.code == 1);
  CHECK(contains(wrong.err, "no job of run id 'other' at 127.0.0.1:"));
  CHECK(contains(wrong.err, "; there is pair\n"));
  const auto told = elsewhere.ask({"stop", endpoint});
  CHECK(told.code == 0);
  CHECK(told.out == "job pair has been told to stop: 2 nodes\n");
  for (auto* node : {&a, &b}) {
    const auto result = node->wait();
    CHECK(result.code == 128 + SIGTERM);
    CHECK(contains(result.err, "stopped by ddprun stop ("));
  }
  CHECK(machine.marker.processes() == 0);
}

TEST_CASE("a node that waits for others is shown and can be stopped") {
  const Machine machine;
  auto child = machine.start({"--nnodes=2", "--rdzv_endpoint=127.0.0.1:" + std::to_string(free_port())});
  child.wait_until([&] { return contains(machine.ask({"status"}).out, "waiting host "); }, "the waiting node");
  CHECK(contains(machine.ask({"status"}).out, "1 of 2 nodes are here"));
  CHECK(machine.ask({"stop"}).code == 0);
  CHECK(child.wait().code == 128 + SIGTERM);
}

TEST_CASE("with several jobs ddprun stop needs a name") {
  const Machine machine;
  auto a = machine.start({"--rdzv_id=a"});
  auto b = machine.start({"--rdzv_id=b"});
  a.wait_until(
      [&] {
        const auto seen = machine.ask({"status"}).out;
        return contains(seen, "job a ") && contains(seen, "job b ") && workers_in(machine.job({"--rdzv_id=a"})) == 1;
      },
      "both jobs");
  const auto refused = machine.ask({"stop"});
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "several jobs"));
  CHECK(machine.ask({"stop", "--rdzv_id=b"}).code == 0);
  CHECK(b.wait().code == 128 + SIGTERM);
  CHECK(contains(machine.ask({"status"}).out, "job a "));
  a.signal(SIGTERM);
  a.wait();
}

TEST_CASE("the socket of an agent that was killed is ignored and removed") {
  const Machine machine;
  auto child = machine.start({});
  child.wait_until([&] { return machine.up(1); }, "the worker");
  const auto& folder = machine.runtime.path();
  REQUIRE_FALSE(std::filesystem::is_empty(folder));
  child.signal(SIGKILL);
  child.wait();
  CHECK(contains(machine.ask({"status"}).err, "no job"));
  CHECK(std::filesystem::is_empty(folder));
  CHECK(machine.ask({"stop"}).code == 1);
}

TEST_CASE("the socket of a killed agent is removed also where its process id is in use again") {
  const Machine machine;
  const auto socket = machine.runtime / (std::to_string(::getpid()) + "-1.sock");
  const auto left = bound_socket(socket);
  CHECK(machine.ask({"status"}).code == 1);
  CHECK_FALSE(std::filesystem::exists(socket));
}

TEST_CASE("status and stop of a job that does not exist end with 1, with an endpoint and without") {
  const Machine machine;
  const auto free = "--rdzv_endpoint=127.0.0.1:" + std::to_string(free_port());
  for (const auto& words : {Words{"status"},
                            {"status", "--rdzv_id=x"},
                            {"status", "--json"},
                            {"status", "--collectives"},
                            {"stop"},
                            {"stop", "--rdzv_id=x"},
                            {"status", free},
                            {"status", free, "--json"},
                            {"stop", free},
                            {"stop", free, "--rdzv_id=x"}}) {
    CAPTURE(words);
    const auto result = machine.ask(words);
    CHECK(result.code == 1);
    CHECK(lines_of(result.err).size() == 1);
  }
  CHECK(machine.ask({"status", "--json"}).out == "{\"jobs\":[]}\n");

  const auto port = free_port();
  Child store({STORE_PROGRAM, "--port=" + std::to_string(port)});
  const auto endpoint = "--rdzv_endpoint=127.0.0.1:" + std::to_string(port);
  store.wait_until([&] { return contains(machine.ask({"status", endpoint}).err, "no job at "); }, "the store");
  for (const auto& words : {Words{"status", endpoint},
                            {"status", endpoint, "--rdzv_id=x"},
                            {"status", endpoint, "--json"},
                            {"status", endpoint, "--json", "--rdzv_id=x"},
                            {"stop", endpoint},
                            {"stop", endpoint, "--rdzv_id=x"}}) {
    CAPTURE(words);
    const auto result = machine.ask(words);
    CHECK(result.code == 1);
    CHECK(contains(result.err, "[ddprun] error: no job "));
  }
}

TEST_CASE("a frozen agent does not hide the others") {
  const Machine machine;
  auto frozen = machine.start({"--rdzv_id=frozen"});
  auto other = machine.start({"--rdzv_id=other"});
  other.wait_until(
      [&] {
        const auto seen = machine.ask({"status"}).out;
        return contains(seen, "job frozen ") && contains(seen, "job other ");
      },
      "both jobs");
  frozen.signal(SIGSTOP);
  const auto result = machine.ask({"status"});
  CHECK(result.code == 0);
  CHECK(contains(result.out, "job other "));
  CHECK(contains(result.err, "/" + std::to_string(frozen.pid()) + "-"));
  CHECK(contains(result.err, ".sock: the agent does not answer; is it frozen?"));
  frozen.signal(SIGCONT);
  for (auto* child : {&frozen, &other}) {
    child->signal(SIGTERM);
    child->wait();
  }
}

// Containers may share the folder.
TEST_CASE("agents with the same process id in two namespaces have a socket each, which neither removes") {
  const Words apart{"/usr/bin/unshare", "--pid", "--fork", "--mount-proc", "--kill-child"};
  const auto inside = [&](Words words) {
    words.insert(words.begin(), apart.begin(), apart.end());
    return words;
  };
  if (Child(inside({"/bin/true"}), {}).wait().code != 0) SKIP("it takes the right to make namespaces");
  const Machine machine;
  const auto start = [&](const std::string& id) {
    return Child(inside(command({"--rdzv_id=" + id}, {"pause"})), machine.variables());
  };
  auto first = start("first"), second = start("second");
  first.wait_until(
      [&] {
        const auto seen = machine.ask({"status"}).out;
        return contains(seen, "job first ") && contains(seen, "job second ");
      },
      "both jobs");
  for (const char* id : {"first", "second"}) CHECK(machine.ask({"stop", std::string("--rdzv_id=") + id}).code == 0);
  for (auto* child : {&first, &second}) child->wait();
}

TEST_CASE("an agent that accepts no connections does not stop status and stop") {
  const Machine machine;
  const auto path = machine.runtime / (std::to_string(::getpid()) + "-1.sock");
  const auto agent = bound_socket(path);
  REQUIRE(::listen(agent.get(), 0) == 0);
  const auto address = unix_address(path);
  std::vector<UniqueFd> queue;
  do queue.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  while (::connect(queue.back().get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  for (const char* word : {"status", "stop"}) {
    const auto result = machine.ask({word});
    CHECK(result.code == 1);
    CHECK(contains(result.err, path.string() + ": the agent does not answer; is it frozen?\n"));
  }
}

TEST_CASE("a control folder that others may enter is named by the agent, by status and by stop") {
  const Machine machine;
  std::filesystem::permissions(machine.runtime.path(), std::filesystem::perms::all);
  const auto reason = machine.runtime.path().string() + ": other users may enter it (its mode is 777, not 700)";
  auto child = machine.start({});
  child.wait_for_err("[ddprun] warning: ddprun status and ddprun stop will not find this agent: " + reason + "\n");
  for (const char* word : {"status", "stop"}) {
    const auto result = machine.ask({word});
    CHECK(result.code == 2);
    CHECK(result.err == "[ddprun] error: DDPRUN_RUNTIME_DIR = " + reason + "; no agent uses it\n");
  }
  child.signal(SIGTERM);
  child.wait();
}

TEST_CASE("a control socket whose path is too long for the kernel is a warning, and the job runs") {
  const Machine machine;
  const auto longer = machine.runtime / std::string(100, 'x');
  const auto result = Child(command({}, {}), {{"DDPRUN_RUNTIME_DIR", longer.string()}}).wait();
  CHECK(result.code == 0);
  CHECK(contains(result.err,
                 "[ddprun] warning: ddprun status and ddprun stop will not find this agent: cannot listen at " +
                     longer.string() + "/"));
}

TEST_CASE("a subcommand accepts only its own options, which its help lists") {
  const Machine machine;
  const auto help = machine.ask({"status", "--he"});
  CHECK(help.code == 0);
  CHECK(contains(help.out, "usage: ddprun status [--rdzv_endpoint=HOST[:PORT]] [--rdzv_id=ID] [--collectives]"));
  CHECK(contains(help.out, "  --collectives     which operation "));
  const auto other = machine.ask({"stop", "-h"});
  CHECK(other.code == 0);
  CHECK_FALSE(contains(other.out, "--collectives"));
  for (const auto& words : {Words{"stop", "--json"}, {"stop", "--collectives"}, {"status", "--version"}}) {
    INFO(words[0] << " " << words[1]);
    const auto refused = machine.ask(words);
    CHECK(refused.code == 2);
    CHECK(contains(refused.err, "unknown option " + words[1]));
  }
}

TEST_CASE("a program named status is started by its path") {
  const TempDir folder;
  std::filesystem::create_symlink(VICTIM_PROGRAM, folder / "status");
  CHECK(run_child({DDPRUN_PROGRAM, (folder / "status").string(), "exit=5"}).code == 5);
  const auto refused = run_child({DDPRUN_PROGRAM, "status", "exit=5"});
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "./status"));
}

}  // namespace ddprun::testing
