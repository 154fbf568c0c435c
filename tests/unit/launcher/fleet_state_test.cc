#include "ddprun/launcher/hosts/fleet_state.h"

#include <csignal>

#include "tests/support/catch.h"

using namespace ddprun;

namespace {

template <class T>
std::vector<T> all(const FleetActions& actions) {
  std::vector<T> found;
  for (const auto& action : actions)
    if (const auto* one = std::get_if<T>(&action)) found.push_back(*one);
  return found;
}

struct Job {
  explicit Job(std::vector<FleetHost> hosts = {{"a"}, {"b"}}, int min_nodes = 2, const std::string& endpoint = "")
      : state(hosts, {.version = "1", .endpoint = endpoint, .min_nodes = min_nodes, .grace = std::chrono::seconds(5)}) {
  }

  // Both hosts run.
  void start() {
    state.on_here(0, "1", {"10.0.0.9", "10.0.0.1"});
    state.on_here(1, "1", {"10.0.0.9", "10.0.0.2"});
    state.on_meeting("10.0.0.1:77");
  }
  int code_after_closing() {
    state.on_closed(0, "");
    const auto finish = all<FinishFleet>(state.on_closed(1, ""));
    REQUIRE(finish.size() == 1);
    return finish[0].exit_code;
  }

  FleetState state;
};

const RemoteAddresses none;

}  // namespace

TEST_CASE("the first host serves, at the address where ssh reached it, the others hear where when it is known") {
  Job job;
  CHECK(all<SendOrder>(job.state.on_here(1, "1", {"10.0.0.9", "10.0.0.2"})).empty());
  const auto first = all<SendOrder>(job.state.on_here(0, "1", {"10.0.0.9", "10.0.0.1"}));
  REQUIRE(first.size() == 1);
  CHECK(first[0].host == 0);
  CHECK(first[0].endpoint == "10.0.0.1:0");
  CHECK(first[0].serves);
  const auto second = all<SendOrder>(job.state.on_meeting("10.0.0.1:77"));
  REQUIRE(second.size() == 1);
  CHECK(second[0].host == 1);
  CHECK(second[0].endpoint == "10.0.0.1:77");
  CHECK(second[0].served_elsewhere);
}

TEST_CASE("a first host that is this machine serves where another host sees this machine") {
  Job job({{"localhost", true}, {"b"}});
  CHECK(all<SendOrder>(job.state.on_here(0, "1", none)).empty());
  const auto orders = all<SendOrder>(job.state.on_here(1, "1", {"10.0.0.9", "10.0.0.2"}));
  REQUIRE(orders.size() == 1);
  CHECK(orders[0].endpoint == "10.0.0.9:0");
}

TEST_CASE("this machine alone meets on loopback, a shell that tells no addresses leaves the name") {
  Job here({{"localhost", true}}, 1);
  CHECK(all<SendOrder>(here.state.on_here(0, "1", none))[0].endpoint == "127.0.0.1:0");
  Job rsh;
  CHECK(all<SendOrder>(rsh.state.on_here(0, "1", none))[0].endpoint == "a:0");
}

TEST_CASE("an endpoint that the user gave is everybody's, and who serves it is found out there") {
  Job job({{"a"}, {"b"}}, 2, "store:29400");
  const auto orders = all<SendOrder>(job.state.on_here(1, "1", none));
  REQUIRE(orders.size() == 1);
  CHECK(orders[0].host == 1);
  CHECK(orders[0].endpoint == "store:29400");
  CHECK_FALSE(orders[0].serves);
  CHECK_FALSE(orders[0].served_elsewhere);
}

TEST_CASE("a host that cannot be started ends the job: one line, the others stopped") {
  Job job;
  job.state.on_here(0, "1", {"", "10.0.0.1"});
  const auto actions = job.state.on_closed(1, "ssh: connect to host b port 22: Connection refused");
  REQUIRE(all<SayError>(actions).size() == 1);
  CHECK(all<SayError>(actions)[0].text ==
        "cannot start ddprun on host b: ssh: connect to host b port 22: Connection refused");
  REQUIRE(all<SendSignal>(actions).size() == 1);
  CHECK(all<SendSignal>(actions)[0].signal_number == SIGTERM);
  const auto end = job.state.on_closed(0, "");
  CHECK(all<SayError>(end).empty());
  REQUIRE(all<FinishFleet>(end).size() == 1);
  CHECK(all<FinishFleet>(end)[0].exit_code == 1);
}

TEST_CASE("another version on a host is refused by name") {
  Job job;
  const auto errors = all<SayError>(job.state.on_here(1, "2", none));
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].text == "host b has ddprun 2, and this is 1: they have to be the same");
}

TEST_CASE("a host without an order reads no signals: its connection is closed") {
  Job job;
  job.state.on_here(0, "1", {"", "10.0.0.1"});
  job.state.on_here(1, "1", {"", "10.0.0.2"});
  const auto actions = job.state.on_signal(SIGINT);
  CHECK(all<SendSignal>(actions).size() == 1);
  REQUIRE(all<CloseConnection>(actions).size() == 1);
  CHECK(all<CloseConnection>(actions)[0].host == 1);
}

TEST_CASE("silence at the start ends by the timer, with the names of the silent") {
  Job job;
  job.state.on_start();
  job.state.on_here(0, "1", {"", "10.0.0.1"});
  const auto errors = all<SayError>(job.state.on_timer());
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].text == "no word from host b within 60 s");
}

TEST_CASE("the job's code is that of its verdict") {
  Job success;
  success.start();
  success.state.on_exit(0, 0);
  success.state.on_exit(1, 0);
  CHECK(success.code_after_closing() == 0);

  Job failure;
  failure.start();
  failure.state.on_exit(1, 7);
  failure.state.on_exit(0, 7);
  CHECK(failure.code_after_closing() == 7);

  Job stopped;
  stopped.start();
  stopped.state.on_signal(SIGINT);
  stopped.state.on_exit(0, 143);
  stopped.state.on_exit(1, 130);
  CHECK(stopped.code_after_closing() == 128 + SIGINT);
}

TEST_CASE("an elastic job may succeed without a host that was lost") {
  Job job({{"a"}, {"b"}}, 1);
  job.start();
  const auto lost = job.state.on_closed(1, "Timeout, server b not responding.");
  REQUIRE(all<SayError>(lost).size() == 1);
  CHECK(all<SayError>(lost)[0].text == "lost contact with host b: Timeout, server b not responding.");
  CHECK(all<SendSignal>(lost).empty());
  job.state.on_exit(0, 0);
  CHECK(all<FinishFleet>(job.state.on_closed(0, ""))[0].exit_code == 0);
}

TEST_CASE("below the minimum the others get time to notice, then SIGTERM, then their connections are closed") {
  Job job;
  job.start();
  const auto lost = job.state.on_closed(1, "gone");
  CHECK(all<SendSignal>(lost).empty());
  REQUIRE(all<SetTimer>(lost).size() == 1);
  CHECK(all<SendSignal>(job.state.on_timer()).size() == 1);
  CHECK(all<CloseConnection>(job.state.on_timer()).size() == 1);
  CHECK(all<FinishFleet>(job.state.on_closed(0, "killed"))[0].exit_code == 1);
}

TEST_CASE("a second signal goes to all, and closes what does not end soon") {
  Job job;
  job.start();
  CHECK(all<SendSignal>(job.state.on_signal(SIGTERM)).size() == 2);
  const auto second = job.state.on_signal(SIGTERM);
  CHECK(all<SendSignal>(second).size() == 2);
  CHECK(all<SetTimer>(second).size() == 1);
  CHECK(all<CloseConnection>(job.state.on_timer()).size() == 2);
}
