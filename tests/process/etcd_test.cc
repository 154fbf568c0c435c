#include <csignal>
#include <fstream>
#include <set>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include "rendezvous/etcd/etcd_client.h"
#include "rendezvous/etcd/etcd_json.h"
#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/etcd_server.h"
#include "tests/support/temp_dir.h"

// Agents on one machine as nodes of a job with a real etcd.
using namespace ddprun;
using namespace ddprun::testing;
using namespace std::chrono_literals;

namespace {

constexpr auto timeout = 100s;  // several leases, on a loaded machine

// The lease is long enough for any load, for tests without a loss.
const std::string long_lease = "keep_alive_max_attempt=60,last_call_timeout=1";
// The lease is short enough to wait for its end.
const std::string quick = "keep_alive_max_attempt=8,last_call_timeout=1,join_timeout=60";

struct Job {
  explicit Job(const EtcdCluster& etcd, std::string name = "job") : endpoints(etcd.endpoints()), id(std::move(name)) {}

  Child start(const std::string& nnodes, const Words& verbs, const std::string& conf, const Words& more = {}) const {
    Words options = {"--nnodes=" + nnodes, "--rdzv_backend=etcd", "--rdzv_endpoint=" + endpoints, "--rdzv_id=" + id,
                     "--rdzv_conf=" + conf};
    options.insert(options.end(), more.begin(), more.end());
    return Child(command(options, verbs), marker.variables());
  }
  std::string file(const std::string& name) const { return (folder / name).string(); }
  bool there(const std::string& name) const { return std::filesystem::exists(folder / name); }
  void make(const std::string& name) const { std::ofstream(file(name)).put('\n'); }
  // In each of the first attempts, as many as given, the worker creates the file "<name>-<attempt>" and waits to be
  // stopped. In the next attempt it creates it and waits for the file "go".
  Words marks(const std::string& name, int attempts) const {
    Words verbs;
    for (int i = 0; i <= attempts; ++i) {
      const auto attempt = std::to_string(i);
      verbs.insert(verbs.end(), {"if-attempt=" + attempt, "touch=" + file(name + "-" + attempt),
                                 i < attempts ? "pause" : "wait-file=" + file("go"), "end-if"});
    }
    return verbs;
  }
  void wait_for_mark(Child& child, const std::string& name) const {
    child.wait_until([&] { return there(name); }, "mark " + name, timeout);
  }

  Marker marker;
  TempDir folder;
  std::string endpoints;
  std::string id;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Returns the log lines other than waiting texts and new rounds.
Words errors_of(const std::string& err) {
  Words errors;
  for (const auto& line : lines_of(err))
    if (line.starts_with("[ddprun] error:")) errors.push_back(line);
  return errors;
}

std::string value_of(const std::string& out, const std::string& name) {
  const auto at = out.find(name + "=");
  if (at == std::string::npos) return "";
  return out.substr(at + name.size() + 1, out.find('\n', at) - at - name.size() - 1);
}

// The keys of the test in etcd.
std::set<std::string> keys(const EtcdCluster& etcd) {
  boost::asio::io_context loop;
  EtcdClient client(loop, {.endpoints = {{"127.0.0.1", static_cast<std::uint16_t>(etcd.port())}}});
  std::set<std::string> names;
  boost::asio::co_spawn(loop, client.call("/v3/kv/range", range_request("/ddprun/"), "all keys", Deadline::in(20s)),
                        [&](const std::exception_ptr& failure, const boost::json::value& answer) {
                          if (failure) std::rethrow_exception(failure);
                          for (const auto& entry : read_range_answer(answer).entries) names.insert(entry.key);
                        });
  loop.run();
  return names;
}

}  // namespace

TEST_CASE("two agents with one etcd form one job and leave no keys") {
  const EtcdCluster etcd;
  const Job job(etcd);
  auto a = job.start("2", {"env"}, long_lease, {"--nproc_per_node=2"});
  auto b = job.start("2", {"env"}, long_lease, {"--nproc_per_node=2"});
  const auto from_a = a.wait(timeout);
  const auto from_b = b.wait(timeout);
  CHECK(from_a.code == 0);
  CHECK(from_b.code == 0);
  CHECK(errors_of(from_a.err).empty());
  CHECK(value_of(from_a.out, "GROUP_WORLD_SIZE") == "2");
  CHECK(value_of(from_a.out, "MASTER_ADDR") == "127.0.0.1");
  CHECK(value_of(from_a.out, "MASTER_PORT") == value_of(from_b.out, "MASTER_PORT"));
  std::set<std::string> ranks;
  for (const auto& line : lines_of(from_a.out + from_b.out))
    if (contains(line, "]:RANK=")) ranks.insert(line.substr(line.find('=') + 1));
  CHECK(ranks == std::set<std::string>{"0", "1", "2", "3"});
  CHECK(keys(etcd).empty());
}

TEST_CASE("a failure ends every agent of an etcd job with the root cause's code and summary") {
  const EtcdCluster etcd;
  const Job job(etcd);
  const Words verbs = {"if-rank=0",
                       "touch=" + job.file("0"),
                       "end-if",
                       "if-rank=1",
                       "wait-file=" + job.file("0"),
                       "err=why\\n",
                       "exit=9",
                       "end-if",
                       "pause"};
  auto a = job.start("2", verbs, long_lease);
  auto b = job.start("2", verbs, long_lease);
  for (auto* node : {&a, &b}) {
    const auto result = node->wait(timeout);
    CHECK(result.code == 9);
    CHECK(contains(result.err, "  rank      : 1 (local_rank: 0)\n"));
    CHECK(contains(result.err, "The end of rank 1's standard error:\n  why\n"));
  }
  CHECK(job.marker.processes() == 0);
  CHECK(keys(etcd).empty());
}

TEST_CASE("the restart budget of an etcd job is job-wide") {
  const EtcdCluster etcd;
  const Job job(etcd);
  const Words verbs = {"env",       "if-rank=1",    "if-attempt=0", "exit=9", "end-if",
                       "if-rank=0", "if-attempt=1", "exit=8",       "end-if", "pause"};
  auto a = job.start("2", verbs, long_lease, {"--max_restarts=1"});
  auto b = job.start("2", verbs, long_lease, {"--max_restarts=1"});
  for (auto* node : {&a, &b}) {
    const auto result = node->wait(timeout);
    CHECK(contains(result.out, "TORCHELASTIC_RESTART_COUNT=1\n"));
    CHECK(contains(result.err, "restart 1 of 1"));
    CHECK(result.code == 8);
  }
}

TEST_CASE("an etcd job accepts a node that joins later, and continues when it leaves") {
  const EtcdCluster etcd;
  const Job job(etcd);
  auto a = job.start("1:2", job.marks("a", 2), long_lease);
  job.wait_for_mark(a, "a-0");
  auto b = job.start("1:2", job.marks("b", 2), long_lease);
  job.wait_for_mark(a, "a-1");
  job.wait_for_mark(b, "b-1");
  b.signal(SIGTERM);
  CHECK(b.wait(timeout).code == 128 + SIGTERM);
  job.wait_for_mark(a, "a-2");
  job.make("go");
  const auto result = a.wait(timeout);
  CHECK(result.code == 0);
  CHECK(contains(result.err, "left: stopped by SIGTERM"));
  CHECK(keys(etcd).empty());
}

TEST_CASE("SIGKILL of each agent of an etcd job in turn, store host and leader included, leads to new rounds") {
  const EtcdCluster etcd;
  const Job job(etcd);
  // The nodes wait for a round of all three: the first one leads, the second serves the workers' store.
  const auto conf = "keep_alive_max_attempt=8,last_call_timeout=300";
  auto leader = job.start("1:3", job.marks("a", 2), conf, {"--node_rank=1"});
  leader.wait_until([&] { return keys(etcd).contains("/ddprun/job/control/leader"); }, "a leader", timeout);
  auto store_host = job.start("1:3", job.marks("b", 2), conf, {"--node_rank=0"});
  store_host.wait_until([&] { return keys(etcd).size() == 5; }, "two nodes", timeout);
  auto last = job.start("1:3", job.marks("c", 2), conf);
  for (const auto* mark : {"a-0", "b-0", "c-0"}) job.wait_for_mark(last, mark);

  store_host.signal(SIGKILL);
  CHECK(store_host.wait(timeout).signal_number == SIGKILL);
  for (const auto* mark : {"a-1", "c-1"}) job.wait_for_mark(last, mark);
  leader.signal(SIGKILL);
  CHECK(leader.wait(timeout).signal_number == SIGKILL);
  job.wait_for_mark(last, "c-2");
  job.make("go");
  const auto result = last.wait(timeout);
  CHECK(result.code == 0);
  CHECK(contains(result.err, "its lease ended"));
  CHECK(job.marker.processes() == 0);
  CHECK(keys(etcd).empty());
}

TEST_CASE("a failure caused by the loss of an etcd job's node costs no restart") {
  const EtcdCluster etcd;
  const Job job(etcd);
  // The peer's worker fails long before the dead node's lease expires, as in a collective.
  Words verbs = {"if-attempt=0", "touch=" + job.file("a-0"), "wait-file=" + job.file("killed"), "exit=5", "end-if"};
  auto a = job.start("1:2", verbs, quick + ",last_call_timeout=300");
  auto b = job.start("1:2", {"touch=" + job.file("b-0"), "pause"}, quick + ",last_call_timeout=300");
  job.wait_for_mark(a, "a-0");
  job.wait_for_mark(a, "b-0");
  b.signal(SIGKILL);
  CHECK(b.wait(timeout).signal_number == SIGKILL);
  job.make("killed");
  const auto result = a.wait(timeout);
  CHECK(result.code == 0);
  CHECK(contains(result.err, "its lease ended"));
  CHECK(!contains(result.err, "restart"));
}

TEST_CASE("an etcd job that cannot continue without a lost node ends with one line") {
  const EtcdCluster etcd;
  const Job job(etcd);
  auto a = job.start("2", job.marks("a", 1), quick);
  auto b = job.start("2", job.marks("b", 1), quick);
  job.wait_for_mark(a, "a-0");
  job.wait_for_mark(b, "b-0");
  b.signal(SIGKILL);
  const auto result = a.wait(timeout);
  CHECK(result.code == 1);
  CHECK(errors_of(result.err).size() == 1);
  CHECK(contains(result.err, "was lost: its lease ended"));
  b.wait_until([&] { return job.marker.processes() == 0; }, "end of every process", timeout);
}

TEST_CASE("a frozen agent loses its lease, the other agents of the etcd job continue, and it exits when it resumes") {
  const EtcdCluster etcd;
  const Job job(etcd);
  auto a = job.start("1:2", job.marks("a", 1), quick + ",last_call_timeout=300");
  auto b = job.start("1:2", job.marks("b", 1), quick + ",last_call_timeout=300");
  job.wait_for_mark(a, "a-0");
  job.wait_for_mark(b, "b-0");
  b.signal(SIGSTOP);
  job.wait_for_mark(a, "a-1");
  b.signal(SIGCONT);
  const auto woken = b.wait(timeout);
  CHECK(woken.code == 1);
  CHECK(contains(woken.err, "lease"));
  job.make("go");
  CHECK(a.wait(timeout).code == 0);
}

TEST_CASE("two jobs with two ids share one etcd") {
  const EtcdCluster etcd;
  const Job one(etcd, "one"), other(etcd, "one/nodes");
  const auto verbs = [](const Job& job) { return Words{"env", "wait-file=" + job.file("go")}; };
  std::vector<std::unique_ptr<Child>> children;
  for (const auto* job : {&one, &other, &one, &other})
    children.push_back(
        std::make_unique<Child>(command({"--nnodes=2", "--rdzv_backend=etcd", "--rdzv_endpoint=" + job->endpoints,
                                         "--rdzv_id=" + job->id, "--rdzv_conf=" + long_lease},
                                        verbs(*job))));
  for (auto& child : children) child->wait_for_out("WORLD_SIZE=2", timeout);
  for (const auto* job : {&one, &other}) job->make("go");
  for (auto& child : children) CHECK(child->wait(timeout).code == 0);
}

TEST_CASE("an agent with other options is refused by an etcd job") {
  const EtcdCluster etcd;
  const Job job(etcd);
  auto a = job.start("2", {"pause"}, long_lease);
  a.wait_for_err("waiting up to", timeout);
  auto b = job.start("2", {"pause"}, long_lease, {"--max_restarts=3"});
  const auto refused = b.wait(timeout);
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "--max_restarts 3 where the job has 0"));
  a.signal(SIGTERM);
  CHECK(a.wait(timeout).code == 128 + SIGTERM);
}

TEST_CASE("a restart of etcd during a job has no effect") {
  EtcdCluster etcd;
  const Job job(etcd);
  auto a = job.start("2", job.marks("a", 0), long_lease);
  auto b = job.start("2", job.marks("b", 0), long_lease);
  job.wait_for_mark(a, "a-0");
  job.wait_for_mark(b, "b-0");
  etcd.restart(0);
  job.make("go");
  for (auto* node : {&a, &b}) {
    const auto result = node->wait(timeout);
    CHECK(result.code == 0);
    CHECK(errors_of(result.err).empty());
    CHECK(!contains(result.err, "new round"));
  }
}

TEST_CASE("an etcd that is down for longer than a lease ends the job with one line") {
  EtcdCluster etcd;
  const Job job(etcd);
  auto a = job.start("2", job.marks("a", 0), quick);
  auto b = job.start("2", job.marks("b", 0), quick);
  job.wait_for_mark(a, "a-0");
  job.wait_for_mark(b, "b-0");
  etcd.kill(0);
  for (auto* node : {&a, &b}) {
    const auto result = node->wait(timeout);
    CHECK(result.code == 1);
    CHECK(errors_of(result.err).size() == 1);
    CHECK(contains(result.err, "lost etcd"));
    CHECK(contains(result.err, job.endpoints));
  }
  CHECK(job.marker.processes() == 0);
}

TEST_CASE("without an etcd server the agent ends with one line after join_timeout") {
  const auto port = std::to_string(free_port());
  const auto result = run_child(
      command({"--nnodes=2", "--rdzv_backend=etcd", "--rdzv_endpoint=127.0.0.1:" + port, "--rdzv_conf=join_timeout=1"},
              {"pause"}));
  CHECK(result.code == 1);
  CHECK(contains(result.err, "no answer from etcd at 127.0.0.1:" + port));
  CHECK(contains(result.err, "Connection refused"));
}

TEST_CASE("an etcd cluster of three works without any one member") {
  EtcdCluster etcd(3);
  const Job job(etcd);
  auto a = job.start("1:2", job.marks("a", 1), long_lease);
  job.wait_for_mark(a, "a-0");
  etcd.kill(0);  // the member that was dialled first
  auto b = job.start("1:2", job.marks("b", 1), long_lease);
  job.wait_for_mark(a, "a-1");
  job.wait_for_mark(b, "b-1");
  job.make("go");
  CHECK(a.wait(timeout).code == 0);
  CHECK(b.wait(timeout).code == 0);
}
