#include <csignal>
#include <deque>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "common/host_port.h"
#include "tests/process/launch.h"
#include "tests/process/machine.h"
#include "tests/support/catch.h"
#include "tests/support/free_port.h"
#include "tests/support/temp_dir.h"

// ddprun attach for a rank of another node: two agents, each in a runtime folder of its own, so that neither finds the
// other's control socket.
using namespace ddprun;
using namespace ddprun::testing;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Node 0 serves the rendezvous.
struct TwoNodes {
  Machine zero, one;
  Words options;
  std::string backend = "c10d";
  std::string conf;
  std::string nnodes = "2";
  std::vector<int> ranks{0, 1, 2};
  std::string endpoint = "--rdzv_endpoint=127.0.0.1:" + std::to_string(free_port());

  Words options_of(int node) const {
    Words words{"--nnodes=" + nnodes,
                "--rdzv_backend=" + backend,
                endpoint,
                "--node_rank=" + std::to_string(ranks.at(static_cast<std::size_t>(node))),
                std::string("--rdzv_conf=is_host=") + (node == 0 ? "true" : "false") + conf,
                "--shutdown_timeout=5"};
    words.insert(words.end(), options.begin(), options.end());
    return words;
  }
  Child start(int node, const Words& first, const Words& then) const {
    return machine(node).start(options_of(node), first, then);
  }
  const Machine& machine(int node) const { return node == 0 ? zero : one; }
  bool up() const { return zero.exists("up0") && one.exists("up0"); }
  void release() const {
    zero.release();
    one.release();
  }
};

Words before(int rank) {
  const auto text = std::to_string(rank);
  return {"out=before " + text + "\\n", "err=warned " + text + "\\n"};
}

}  // namespace

TEST_CASE("attach follows a rank of another node to the end of the job, and ends with its exit code") {
  const TempDir logs;
  TwoNodes nodes;
  if (GENERATE(false, true)) nodes.options = {"-r", "3", "--log_dir=" + logs.path().string()};
  const int rank = GENERATE(0, 1);
  CAPTURE(nodes.options, rank);
  const auto text = std::to_string(rank);
  const Words after{"if-rank=" + text, "out=after " + text + "\\n", "exit=7", "end-if", "pause"};
  auto zero = nodes.start(0, before(0), after);
  auto one = nodes.start(1, before(1), after);
  zero.wait_until([&] { return nodes.up(); }, "the workers");
  auto attached = nodes.machine(1 - rank).attach({text});
  attached.wait_for_out("before " + text + "\n");
  attached.wait_for_err("warned " + text + "\n");
  nodes.machine(rank).release();
  const auto result = attached.wait();
  CHECK(result.code == 7);
  CHECK(result.out == "before " + text + "\nafter " + text + "\n");
  CHECK(result.err == "warned " + text + "\n");
  CHECK(zero.wait().code == 7);
  CHECK(one.wait().code == 7);
}

TEST_CASE("attach follows and signals a rank of another node over TLS, and with the static rendezvous") {
  const TempDir folder;
  TwoNodes nodes;
  SECTION("TLS") {
    const auto token = folder / "token";
    std::ofstream(token) << std::string(64, 'a') << "\n";
    std::filesystem::permissions(token, std::filesystem::perms(0600));
    nodes.conf = ",token_file=" + token.string();
  }
  SECTION("static") {
    nodes.backend = "static";
  }
  auto zero = nodes.start(0, before(0), {});
  auto one = nodes.start(1, before(1), {"out=after 1\\n"});
  zero.wait_until([&] { return nodes.up(); }, "the workers");
  auto attached = nodes.zero.attach({"1"});
  attached.wait_for_out("before 1\n");
  CHECK(nodes.one.ask({"0", "--signal=WINCH"}).code == 0);
  nodes.release();
  const auto result = attached.wait();
  CHECK(result.code == 0);
  CHECK(result.out == "before 1\nafter 1\n");
  CHECK(zero.wait().code == 0);
  CHECK(one.wait().code == 0);
}

TEST_CASE("what a rank of another node writes last is shown, also much of it") {
  TwoNodes nodes;
  const int code = GENERATE(0, 7);
  CAPTURE(code);
  const Words much{"out=" + std::string(60'000, 'x') + "\\n", "err=" + std::string(60'000, 'y') + "\\n",
                   "out=" + std::string(60'000, 'z') + "\\n", "exit=" + std::to_string(code)};
  auto zero = nodes.start(0, before(0), {});
  auto one = nodes.start(1, before(1), much);
  zero.wait_until([&] { return nodes.up(); }, "the workers");
  auto attached = nodes.zero.attach({"1"});
  attached.wait_for_out("before 1\n");
  nodes.zero.release();
  // All other nodes have succeeded, so that the job ends as soon as this one reports the end of its worker.
  const auto status = [&] { return Child({DDPRUN_PROGRAM, "status", nodes.endpoint}).wait().out; };
  zero.wait_until([&] { return contains(status(), "exited with 0"); }, "the end of rank 0");
  nodes.one.release();
  const auto result = attached.wait();
  CHECK(result.code == code);
  CHECK(result.out == "before 1\n" + std::string(60'000, 'x') + "\n" + std::string(60'000, 'z') + "\n");
  CHECK(result.err == "warned 1\n" + std::string(60'000, 'y') + "\n");
}

TEST_CASE("attach --signal sends a rank of another node a signal, and its agent says who asked") {
  TwoNodes nodes;
  auto zero = nodes.start(0, {}, {});
  auto one = nodes.start(1, {"answer=10"}, {});
  zero.wait_until([&] { return nodes.up(); }, "the workers");
  const auto caught = nodes.zero.ask({"1", "--signal=USR1"});
  CHECK(caught.code == 0);
  CHECK(caught.out == "SIGUSR1 was sent to rank 1\n");
  one.wait_for_out("got 10\n");
  one.wait_for_err("ddprun attach (");
  CHECK(contains(one.err(), " on host " + local_host_name() + ") sent SIGUSR1 to the worker of local rank 0"));
  CHECK_FALSE(contains(zero.err(), "sent SIGUSR1"));
  CHECK(nodes.one.ask({"0", "--signal=TERM"}).code == 0);
  CHECK(zero.wait().code == 128 + SIGTERM);
  CHECK(one.wait().code == 128 + SIGTERM);
}

TEST_CASE("a client that does not read delays neither the other node nor the rendezvous") {
  TwoNodes nodes;
  Words much;
  for (int i = 0; i < 16; ++i) much.push_back("out=" + std::string(100'000, 'x') + "\\n");
  much.insert(much.end(), {"touch=" + nodes.one.file("written"), "wait-file=" + nodes.one.file("end")});
  much.emplace_back("out=last\\n");
  auto zero = nodes.start(0, before(0), {});
  auto one = nodes.start(1, before(1), much);
  zero.wait_until([&] { return nodes.up(); }, "the workers");
  auto attached = nodes.zero.attach({"1"});
  attached.wait_for_out("before 1\n");
  attached.signal(SIGSTOP);
  nodes.release();
  one.wait_until([&] { return nodes.one.exists("written"); }, "the end of the output");
  CHECK(nodes.zero.ask({"1", "--signal=WINCH"}).code == 0);
  attached.signal(SIGCONT);
  attached.wait_for_err("bytes of rank 1's output are left out here: they were not read in time\n");
  std::ofstream(nodes.one.file("end")).put('\n');
  const auto result = attached.wait();
  CHECK(result.code == 0);
  CHECK(result.out.ends_with("last\n"));
  CHECK(result.out.size() < 1'600'000);
  CHECK(zero.wait().code == 0);
  CHECK(one.wait().code == 0);
}

TEST_CASE("attach says that the agent of its rank, which served the rendezvous, was lost, and ends with the job") {
  TwoNodes nodes;
  auto zero = nodes.start(0, before(0), {});
  auto one = nodes.start(1, before(1), {});
  zero.wait_until([&] { return nodes.up(); }, "the workers");
  auto attached = nodes.one.attach({"0"});
  attached.wait_for_out("before 0\n");
  zero.signal(SIGKILL);
  const auto result = attached.wait();
  CHECK(result.code == 1);
  CHECK(contains(result.err, "lost the rendezvous server at 127.0.0.1:"));
  CHECK(one.wait().code == 1);
}

TEST_CASE("attach says that the host of its rank was lost, and ends with the job") {
  TwoNodes nodes;
  auto zero = nodes.start(0, before(0), {});
  auto one = nodes.start(1, before(1), {});
  zero.wait_until([&] { return nodes.up(); }, "the workers");
  auto attached = nodes.zero.attach({"1"});
  attached.wait_for_out("before 1\n");
  one.signal(SIGKILL);
  const auto result = attached.wait();
  CHECK(result.code == 1);
  CHECK(contains(result.err, "host " + local_host_name() + ", which has rank 1, was lost: its connection closed\n"));
  CHECK(zero.wait().code == 1);
}

TEST_CASE("attach ends with an error if the agent that it asks is killed, and the other node's agent goes on") {
  TwoNodes nodes;
  nodes.options = {"--max_restarts=1"};
  auto zero = nodes.start(0, before(0), {});
  auto one = nodes.start(1, before(1), {});
  zero.wait_until([&] { return nodes.up(); }, "the workers");
  auto attached = nodes.one.attach({"0"});
  attached.wait_for_out("before 0\n");
  one.signal(SIGKILL);
  const auto result = attached.wait();
  CHECK(result.code == 1);
  CHECK(
      contains(result.err, "[ddprun] error: the agent (pid " + std::to_string(one.pid()) + ") ended before the job\n"));
  auto again = nodes.start(1, before(1), {});
  again.wait_for_out("before 1\n");
  nodes.release();
  CHECK(zero.wait().code == 0);
  CHECK(again.wait().code == 0);
}

TEST_CASE("attach follows a rank of another node through a restart") {
  TwoNodes nodes;
  nodes.options = {"--max_restarts=1"};
  auto zero = nodes.start(0, {"out=attempt\\n"}, {"if-attempt=0", "pause"});
  auto one = nodes.start(1, {"out=attempt\\n"}, {"if-attempt=0", "exit=3"});
  zero.wait_until([&] { return nodes.up(); }, "the workers");
  auto attached = nodes.zero.attach({"1"});
  attached.wait_for_out("attempt\n");
  nodes.release();
  const auto result = attached.wait();
  CHECK(result.code == 0);
  CHECK(result.out == "attempt\nattempt\n");
  CHECK(zero.wait().code == 0);
  CHECK(one.wait().code == 0);
}

TEST_CASE("attach follows a rank to the node that replaces its own") {
  TwoNodes nodes;
  const Machine other;
  nodes.options = {"--max_restarts=1"};
  auto zero = nodes.start(0, before(0), {});
  auto one = nodes.start(1, {"rank=first"}, {});
  zero.wait_until([&] { return nodes.up(); }, "the workers");
  auto attached = nodes.zero.attach({"1"});
  attached.wait_for_out("first 1 of 2\n");
  one.signal(SIGKILL);
  attached.wait_for_err("which has rank 1, was lost");
  auto two = other.start(nodes.options_of(1), {"rank=second"}, {});
  attached.wait_for_out("second 1 of 2\n");
  other.release();
  nodes.zero.release();
  const auto result = attached.wait();
  CHECK(result.code == 0);
  CHECK(result.out == "first 1 of 2\nsecond 1 of 2\n");
  CHECK(zero.wait().code == 0);
  CHECK(two.wait().code == 0);
}

TEST_CASE("attach goes on with a rank after the agent that served the rendezvous was replaced") {
  TwoNodes nodes;
  nodes.options = {"--max_restarts=1"};
  auto zero = nodes.start(0, before(0), {});
  auto one = nodes.start(1, before(1), {});
  zero.wait_until([&] { return nodes.up(); }, "the workers");
  auto attached = nodes.one.attach({"0"});
  attached.wait_for_out("before 0\n");
  zero.signal(SIGKILL);
  attached.wait_for_err("lost the rendezvous server at 127.0.0.1:");
  auto again = nodes.start(0, {"out=again\\n"}, {});
  attached.wait_for_out("again\n");
  nodes.release();
  CHECK(attached.wait().code == 0);
  CHECK(again.wait().code == 0);
  CHECK(one.wait().code == 0);
}

TEST_CASE("attach follows a rank that comes to the client's own node, and says that another one is gone") {
  TwoNodes nodes;
  nodes.nnodes = "1:2";
  nodes.options = {"--max_restarts=1"};
  std::swap(nodes.ranks[0], nodes.ranks[1]);
  auto zero = nodes.start(0, {"rank=zero"}, {});
  auto one = nodes.start(1, {"rank=one"}, {});
  zero.wait_until([&] { return nodes.up(); }, "the workers");
  auto moves = nodes.zero.attach({"0"});
  auto ends = nodes.zero.attach({"1"});
  moves.wait_for_out("one 0 of 2\n");
  ends.wait_for_out("zero 1 of 2\n");
  one.signal(SIGKILL);
  moves.wait_for_out("zero 0 of 1\n");
  const auto ended = ends.wait();
  CHECK(ended.code == 1);
  CHECK(contains(ended.err, "rank 1 has moved to another node\n"));
  CHECK(contains(ended.err, "[ddprun] error: the job has no rank 1: its ranks are 0 to 0\n"));
  nodes.release();
  const auto moved = moves.wait();
  CHECK(moved.code == 0);
  CHECK(moved.out == "one 0 of 2\nzero 0 of 1\n");
  CHECK(zero.wait().code == 0);
}

TEST_CASE("attach follows a rank that leaves the client's node") {
  TwoNodes nodes;
  const Machine two;
  nodes.nnodes = "2:3";
  nodes.options = {"--max_restarts=1", "--nproc_per_node=2"};
  nodes.ranks = {2, 1, 0};
  auto zero = nodes.start(0, {"rank=zero"}, {});
  nodes.options = {"--max_restarts=1"};
  auto one = nodes.start(1, {"rank=one"}, {});
  auto lost = two.start(nodes.options_of(2), {"rank=two"}, {});
  zero.wait_until([&] { return nodes.up(); }, "the workers");
  auto attached = nodes.zero.attach({"2"});
  attached.wait_for_out("zero 2 of 4\n");
  lost.signal(SIGKILL);
  attached.wait_for_out("one 2 of 3\n");
  nodes.release();
  const auto result = attached.wait();
  CHECK(result.code == 0);
  CHECK(result.out == "zero 2 of 4\none 2 of 3\n");
  CHECK(contains(result.err, "rank 2 has moved to another node\n"));
  CHECK(zero.wait().code == 0);
  CHECK(one.wait().code == 0);
}

TEST_CASE("an agent serves 16 clients and followers elsewhere at a time") {
  TwoNodes nodes;
  auto zero = nodes.start(0, before(0), {});
  auto one = nodes.start(1, before(1), {});
  zero.wait_until([&] { return nodes.up(); }, "the workers");
  std::deque<Child> attached;
  for (int i = 0; i < 16; ++i)
    attached.emplace_back(Words{DDPRUN_PROGRAM, "attach", "1"}, nodes.machine(i == 0 ? 1 : 0).variables())
        .wait_for_out("before 1\n");
  for (const int node : {0, 1}) {
    CAPTURE(node);
    const auto result = nodes.machine(node).ask({"1"});
    CHECK(result.code == 1);
    CHECK(result.err == "[ddprun] error: 16 clients are attached already\n");
  }
  attached.back().signal(SIGKILL);
  attached.pop_back();
  // The agents learn of the end of that client in their own time.
  std::optional<Child> next;
  zero.wait_until(
      [&] {
        next.emplace(Words{DDPRUN_PROGRAM, "attach", "1"}, nodes.zero.variables());
        next->wait_until([&] { return !next->out().empty() || !next->err().empty(); }, "an answer");
        return contains(next->out(), "before 1\n");
      },
      "space for one more");
  nodes.release();
  CHECK(next->wait().code == 0);
  for (auto& each : attached) CHECK(each.wait().code == 0);
}

TEST_CASE("a rank that no agent of this machine can ask for is named with its host") {
  TwoNodes nodes;
  const Machine elsewhere;
  auto zero = nodes.start(0, before(0), {});
  auto one = nodes.start(1, before(1), {});
  zero.wait_until([&] { return nodes.up(); }, "the workers");
  const auto result = elsewhere.ask({"1", nodes.endpoint});
  CHECK(result.code == 1);
  CHECK(contains(result.err, "rank 1 of the job runs on host " + local_host_name()));
  CHECK(contains(result.err, ": use ddprun attach there, an agent answers on its own machine\n"));
  const auto none = nodes.zero.ask({"2"});
  CHECK(none.code == 2);
  CHECK(none.err == "[ddprun] error: the job has no rank 2: its ranks are 0 to 1\n");
  nodes.release();
}
