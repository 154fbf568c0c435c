#include "launcher/hosts/hosts_job_state.h"

#include <csignal>

#include "tests/support/catch.h"

using namespace ddprun;

namespace {

template <class T>
std::vector<T> all(const HostsJobActions& actions) {
  std::vector<T> found;
  for (const auto& action : actions)
    if (const auto* one = std::get_if<T>(&action)) found.push_back(*one);
  return found;
}

struct Job {
  explicit Job(std::vector<JobHost> hosts = {{"a"}, {"b"}}, int min_nodes = 2, const std::string& endpoint = "")
      : state(hosts, {.version = "1", .endpoint = endpoint, .min_nodes = min_nodes, .grace = std::chrono::seconds(5)}) {
  }

  // Both hosts run.
  void start() {
    state.on_started(0, "1", {"10.0.0.9", "10.0.0.1"});
    state.on_started(1, "1", {"10.0.0.9", "10.0.0.2"});
    state.on_rendezvous("10.0.0.1:77");
  }
  int code_after_closing() {
    state.on_closed(0, "");
    const auto finish = all<FinishHostsJob>(state.on_closed(1, ""));
    REQUIRE(finish.size() == 1);
    return finish[0].exit_code;
  }

  HostsJobState state;
};

const RemoteAddresses none;

}  // namespace

TEST_CASE(
    "the first host runs the rendezvous server at the address where ssh reached it, then the others get its endpoint") {
  Job job;
  CHECK(all<SendRequest>(job.state.on_started(1, "1", {"10.0.0.9", "10.0.0.2"})).empty());
  const auto first = all<SendRequest>(job.state.on_started(0, "1", {"10.0.0.9", "10.0.0.1"}));
  REQUIRE(first.size() == 1);
  CHECK(first[0].host == 0);
  CHECK(first[0].endpoint == "10.0.0.1:0");
  CHECK(first[0].serves);
  const auto second = all<SendRequest>(job.state.on_rendezvous("10.0.0.1:77"));
  REQUIRE(second.size() == 1);
  CHECK(second[0].host == 1);
  CHECK(second[0].endpoint == "10.0.0.1:77");
  CHECK(second[0].served_elsewhere);
}

TEST_CASE("a first host that is this machine uses the address from which ssh connected to another host") {
  Job job({{"localhost", true}, {"b"}});
  CHECK(all<SendRequest>(job.state.on_started(0, "1", none)).empty());
  const auto requests = all<SendRequest>(job.state.on_started(1, "1", {"10.0.0.9", "10.0.0.2"}));
  REQUIRE(requests.size() == 1);
  CHECK(requests[0].endpoint == "10.0.0.9:0");
}

TEST_CASE("this machine alone uses the loopback address, and without addresses from ssh the host's name is used") {
  Job local({{"localhost", true}}, 1);
  CHECK(all<SendRequest>(local.state.on_started(0, "1", none))[0].endpoint == "127.0.0.1:0");
  Job rsh;
  CHECK(all<SendRequest>(rsh.state.on_started(0, "1", none))[0].endpoint == "a:0");
}

TEST_CASE("an endpoint from the user is sent to all hosts, which decide themselves which one serves it") {
  Job job({{"a"}, {"b"}}, 2, "store:29400");
  const auto requests = all<SendRequest>(job.state.on_started(1, "1", none));
  REQUIRE(requests.size() == 1);
  CHECK(requests[0].host == 1);
  CHECK(requests[0].endpoint == "store:29400");
  CHECK_FALSE(requests[0].serves);
  CHECK_FALSE(requests[0].served_elsewhere);
}

TEST_CASE("a host that cannot be started ends the job with one line, and the other agents are stopped") {
  Job job;
  job.state.on_started(0, "1", {"", "10.0.0.1"});
  const auto actions = job.state.on_closed(1, "ssh: connect to host b port 22: Connection refused");
  REQUIRE(all<LogError>(actions).size() == 1);
  CHECK(all<LogError>(actions)[0].text ==
        "cannot start ddprun on host b: ssh: connect to host b port 22: Connection refused");
  REQUIRE(all<SendSignal>(actions).size() == 1);
  CHECK(all<SendSignal>(actions)[0].signal_number == SIGTERM);
  const auto end = job.state.on_closed(0, "");
  CHECK(all<LogError>(end).empty());
  REQUIRE(all<FinishHostsJob>(end).size() == 1);
  CHECK(all<FinishHostsJob>(end)[0].exit_code == 1);
}

TEST_CASE("another version on a host is refused by name") {
  Job job;
  const auto errors = all<LogError>(job.state.on_started(1, "2", none));
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].text == "host b has ddprun 2, and this is 1: both must be the same version");
}

TEST_CASE("the connection of a host without a launch request is killed on a signal") {
  Job job;
  job.state.on_started(0, "1", {"", "10.0.0.1"});
  job.state.on_started(1, "1", {"", "10.0.0.2"});
  const auto actions = job.state.on_signal(SIGINT);
  CHECK(all<SendSignal>(actions).size() == 1);
  REQUIRE(all<KillConnection>(actions).size() == 1);
  CHECK(all<KillConnection>(actions)[0].host == 1);
}

TEST_CASE("hosts that send no message at the start are named when the timer expires") {
  Job job;
  job.state.on_start();
  job.state.on_started(0, "1", {"", "10.0.0.1"});
  const auto errors = all<LogError>(job.state.on_timer());
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].text == "no message from host b within 60 s");
}

TEST_CASE("the exit code is the job's, or that of a signal to this process") {
  Job success;
  success.start();
  success.state.on_exit_code(0, 0);
  success.state.on_exit_code(1, 0);
  CHECK(success.code_after_closing() == 0);

  Job failure;
  failure.start();
  failure.state.on_exit_code(1, 7);
  failure.state.on_exit_code(0, 7);
  CHECK(failure.code_after_closing() == 7);

  Job stopped;
  stopped.start();
  stopped.state.on_signal(SIGINT);
  stopped.state.on_exit_code(0, 143);
  stopped.state.on_exit_code(1, 130);
  CHECK(stopped.code_after_closing() == 128 + SIGINT);
}

TEST_CASE("an elastic job may succeed without a host that was lost") {
  Job job({{"a"}, {"b"}}, 1);
  job.start();
  const auto lost = job.state.on_closed(1, "Timeout, server b not responding.");
  REQUIRE(all<LogError>(lost).size() == 1);
  CHECK(all<LogError>(lost)[0].text == "lost contact with host b: Timeout, server b not responding.");
  CHECK(all<SendSignal>(lost).empty());
  job.state.on_exit_code(0, 0);
  CHECK(all<FinishHostsJob>(job.state.on_closed(0, ""))[0].exit_code == 0);
}

TEST_CASE("with too few hosts left the other agents get time to end, then SIGTERM, then their connections are killed") {
  Job job;
  job.start();
  const auto lost = job.state.on_closed(1, "gone");
  CHECK(all<SendSignal>(lost).empty());
  REQUIRE(all<SetTimer>(lost).size() == 1);
  CHECK(all<SendSignal>(job.state.on_timer()).size() == 1);
  CHECK(all<KillConnection>(job.state.on_timer()).size() == 1);
  CHECK(all<FinishHostsJob>(job.state.on_closed(0, "killed"))[0].exit_code == 1);
}

TEST_CASE("a second signal goes to all agents, and their connections are killed soon after") {
  Job job;
  job.start();
  CHECK(all<SendSignal>(job.state.on_signal(SIGTERM)).size() == 2);
  const auto second = job.state.on_signal(SIGTERM);
  CHECK(all<SendSignal>(second).size() == 2);
  CHECK(all<SetTimer>(second).size() == 1);
  CHECK(all<KillConnection>(job.state.on_timer()).size() == 2);
}
