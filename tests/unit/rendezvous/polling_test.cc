#include "rendezvous/store/polling.h"

#include "tests/support/catch.h"

using namespace ddprun::rendezvous;
using namespace std::chrono_literals;

namespace {

// A server with one client, which sends each request this long after the previous one.
struct Client {
  Polling polling;
  Polling::Clock::duration to_sleeper, to_poller;
  bool late_polls = false;  // polls that return with the request, however long it took
  Polling::Clock::time_point now{100s};
  bool polls = false;
  std::size_t requests_polled_for = 0, looks_in_vain = 0;

  void request() {
    const auto gap = polls ? to_poller : to_sleeper;
    const bool found = polls && (gap <= Polling::window || late_polls);
    if (found) {
      ++requests_polled_for;
    } else if (polls) {
      polling.poll_missed();
      ++looks_in_vain;
    }
    now += gap;
    polls = polling.served(1, now, found) > 0ns;
  }
  // Runs of requests; one more request starts the first run.
  void runs(std::size_t count) {
    for (std::size_t i = 0; i < count * Polling::run_requests; ++i) request();
  }
  // A request that does not belong to a run.
  void idle_gap() {
    if (polls) polling.poll_missed();
    now += 1h;
    polls = polling.served(1, now, false) > 0ns;
  }
};

}  // namespace

TEST_CASE("a server polls after a run of frequent requests, and continues while that is faster") {
  Client client{.to_sleeper = 50us, .to_poller = 25us};
  client.runs(1);
  CHECK_FALSE(client.polls);
  client.runs(100);
  CHECK(client.requests_polled_for > 98 * Polling::run_requests);
  CHECK(client.looks_in_vain == 0);
}

TEST_CASE("the pace without polling is measured again from time to time, for one run") {
  Client client{.to_sleeper = 50us, .to_poller = 25us};
  client.runs(1);
  client.request();
  for (std::size_t trusted = 0; client.polls; ++trusted) {
    REQUIRE(trusted <= Polling::max_polling_runs * Polling::run_requests);
    client.request();
  }
  client.runs(1);
  CHECK(client.polls);
}

TEST_CASE("a server that polls without finding requests stops, for twice as long after each trial") {
  Client client{.to_sleeper = 60us, .to_poller = 60us};  // the gap is longer than a poll
  client.runs(1'000);
  CHECK(client.looks_in_vain <= 10 * (Polling::max_misses + 1));
  CHECK(client.looks_in_vain > 5 * (Polling::max_misses + 1));
  client.runs(3 * Polling::max_backoff_runs);
  CHECK(client.looks_in_vain <= 14 * (Polling::max_misses + 1));
}

TEST_CASE("after any number of failures polling is tried again, and a success resets the pause") {
  Client client{.to_sleeper = 60us, .to_poller = 60us};
  client.runs(4 * Polling::max_backoff_runs);
  client.looks_in_vain = 0;
  client.runs(2 * Polling::max_backoff_runs);
  REQUIRE(client.looks_in_vain > 0);

  client.to_poller = 25us;
  client.runs(Polling::max_backoff_runs + 1);
  REQUIRE(client.polls);
  client.to_poller = 60us;
  client.looks_in_vain = 0;
  client.runs(10);
  CHECK(client.looks_in_vain > 2 * Polling::max_misses);
}

TEST_CASE("polling that finds requests but is not faster is a failure too") {
  Client client{.to_sleeper = 30us, .to_poller = 29'500ns};
  client.runs(1'000);
  CHECK(client.requests_polled_for <= 10 * Polling::run_requests);
  CHECK(client.requests_polled_for > 5 * Polling::run_requests);
}

TEST_CASE("a busy server, which hardly sleeps, does not poll") {
  Client client{.to_sleeper = 9us, .to_poller = 5us};
  client.runs(1'000);
  CHECK(client.requests_polled_for == 0);
}

TEST_CASE("rare requests are never polled for") {
  Client client{.to_sleeper = 150us, .to_poller = 20us};
  client.runs(1'000);
  CHECK(client.requests_polled_for == 0);
}

TEST_CASE("many clients at once count by their requests, not by the server's wake-ups") {
  Polling polling;
  Polling::Clock::time_point now(100s);
  for (int i = 0; i < 1'000; ++i) CHECK(polling.served(8, now += 60us, false) == 0us);
}

TEST_CASE("after a pause of the clients a server does not poll for one run, and then continues") {
  Client client{.to_sleeper = 50us, .to_poller = 25us};
  client.runs(10);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(client.polls);
    client.idle_gap();
    client.requests_polled_for = 0;
    client.runs(1);
    CHECK(client.requests_polled_for == 0);
    client.runs(10);
    CHECK(client.requests_polled_for == 10 * Polling::run_requests);
  }
}

TEST_CASE("a pause of the clients does not shorten the time without polling") {
  Client client{.to_sleeper = 60us, .to_poller = 60us};
  client.runs(400);  // until the pause is several hundred runs
  client.looks_in_vain = 0;
  for (int i = 0; i < 50; ++i) {
    client.idle_gap();
    client.runs(2);
  }
  CHECK(client.looks_in_vain == 0);
}

TEST_CASE("a poll that returns much too late is a failure at once, for twice as long each time") {
  Client client{.to_sleeper = 50us, .to_poller = 4ms, .late_polls = true};
  client.runs(1'000);
  CHECK(client.requests_polled_for <= 10);
  CHECK(client.requests_polled_for > 5);
}
