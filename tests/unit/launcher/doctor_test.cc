#include <algorithm>
#include <set>
#include <thread>

#include "common/error.h"
#include "launcher/doctor/diagnosis.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::doctor;
using std::chrono::milliseconds;

namespace {

constexpr std::uint64_t gib = std::uint64_t{1} << 30;

HostResult healthy(int i) {
  const auto address = "10.0.0." + std::to_string(i);
  return {.host = "n" + std::to_string(i),
          .facts = HostFacts{.name = "n" + std::to_string(i),
                             .name_addresses = {address},
                             .addresses = {address},
                             .version = "1.0",
                             .cpus = 8,
                             .memory = 16 * gib,
                             .shared_memory = 8 * gib,
                             .shared_memory_free = 8 * gib,
                             .descriptors = 1 << 20,
                             .rendezvous_port_free = true,
                             .gpus = 0,
                             .libraries = {}},
          .error = {}};
}

// Returns hosts whose links all have 10 Gbit/s.
Measurements healthy_hosts(int count) {
  Measurements all{.version = "1.0", .hosts = {}, .links = {}};
  for (int i = 0; i < count; ++i) all.hosts.push_back(healthy(i));
  for (const auto& round : rounds_of_pairs(static_cast<std::size_t>(count)))
    for (const auto& [from, to] : round)
      all.links.push_back({.from = from,
                           .to = to,
                           .figures = LinkFigures{.round_trip = std::chrono::microseconds(50),
                                                  .sent_bytes_per_s = 1.25e9,
                                                  .received_bytes_per_s = 1.25e9,
                                                  .clock_ahead = std::chrono::microseconds(3)},
                           .error = {}});
  return all;
}

LinkResult& link(Measurements& all, std::size_t from, std::size_t to) {
  return *std::find_if(all.links.begin(), all.links.end(),
                       [&](const auto& each) { return each.from == from && each.to == to; });
}

void break_link(Measurements& all, std::size_t from, std::size_t to) {
  link(all, from, to).figures.reset();
  link(all, from, to).error = "nothing answers";
}

using Lines = std::vector<std::string>;
using Hosts = std::vector<std::size_t>;

}  // namespace

TEST_CASE("all pairs of hosts are tested once, and no host twice in a round") {
  for (std::size_t hosts = 0; hosts <= 17; ++hosts) {
    std::set<Pair> pairs;
    for (const auto& round : rounds_of_pairs(hosts)) {
      std::set<std::size_t> busy;
      for (const auto& [a, b] : round) {
        CHECK(a < b);
        CHECK(b < hosts);
        CHECK(pairs.insert({a, b}).second);
        CHECK(busy.insert(a).second);
        CHECK(busy.insert(b).second);
      }
    }
    CHECK(pairs.size() == hosts * (hosts - std::min<std::size_t>(hosts, 1)) / 2);
    CHECK(rounds_of_pairs(hosts).size() <= hosts);
  }
}

TEST_CASE("healthy hosts pass, and the hostfile has their processors") {
  const auto all = healthy_hosts(3);
  const auto found = diagnose(all);
  CHECK(found.problems.empty());
  CHECK(found.notes.empty());
  CHECK(found.passed == Hosts{0, 1, 2});
  CHECK(hostfile_text(all, found) == "n0 slots=8\nn1 slots=8\nn2 slots=8\n");
  CHECK(report_text(all, found).ends_with("3 of 3 hosts passed\n"));
}

TEST_CASE("what is wrong with a host is one line that names it") {
  auto all = healthy_hosts(6);
  all.hosts[0].facts->version = "0.9";
  all.hosts[1].facts->name_addresses = {"10.0.0.99"};
  all.hosts[2].facts->shared_memory_free = gib / 1024;
  all.hosts[3].facts->descriptors = 256;
  all.hosts[4] = {.host = "n4", .facts = {}, .error = "Permission denied (publickey)."};
  const auto found = diagnose(all);
  CHECK(found.problems ==
        Lines{"n0: it has ddprun 0.9, and this is 1.0",
              "n1: its own name, n1, means 10.0.0.99, which is no address of this host (10.0.0.1)",
              "n2: /dev/shm has 1 of 8192 MiB left, and ranks of one host exchange through it: remove files there",
              "n3: the hard limit of open files is 256: raise it to 1024 or more (ulimit -Hn)",
              "n4: Permission denied (publickey)."});
  CHECK(found.passed == Hosts{5});
}

TEST_CASE("a name without an address is a problem, one that means loopback is a note with several hosts") {
  auto all = healthy_hosts(2);
  all.hosts[0].facts->name_addresses.clear();
  all.hosts[1].facts->name_addresses = {"127.0.1.1"};
  const auto found = diagnose(all);
  CHECK(found.problems == Lines{"n0: its own name, n0, has no address: add it to /etc/hosts or the name server"});
  REQUIRE(found.notes.size() == 1);
  CHECK(found.notes[0].starts_with("n1: its own name, n1, means 127.0.1.1 there, which no other host reaches: "));
  auto alone = healthy_hosts(1);
  alone.hosts[0].facts->name_addresses = {"127.0.1.1"};
  CHECK(diagnose(alone).notes.empty());
}

TEST_CASE("the clock that differs is found whichever host it is") {
  for (const std::size_t wrong : {0U, 2U}) {
    auto all = healthy_hosts(4);
    for (auto& each : all.links) {
      if (each.to == wrong) each.figures->clock_ahead = milliseconds(-5000);
      if (each.from == wrong) each.figures->clock_ahead = milliseconds(5000);
    }
    const auto found = diagnose(all);
    REQUIRE(found.problems.size() == 1);
    CHECK(
        found.problems[0].starts_with("n" + std::to_string(wrong) + ": its clock is 5.0 s behind that of the others"));
    CHECK(found.passed.size() == 3);
  }
}

TEST_CASE("a broken link is named, and the host with most of them is left out") {
  auto all = healthy_hosts(4);
  break_link(all, 0, 2);
  break_link(all, 2, 3);
  const auto found = diagnose(all);
  CHECK(found.problems.size() == 2);
  CHECK(std::count(found.problems.begin(), found.problems.end(), "n0 to n2: nothing answers") == 1);
  CHECK(found.passed == Hosts{0, 1, 3});
}

TEST_CASE("of two hosts without a link the first one in the list is kept") {
  auto all = healthy_hosts(3);
  break_link(all, 0, 1);
  CHECK(diagnose(all).passed == Hosts{0, 2});
}

TEST_CASE("a link below half of the usual rate is a note") {
  auto all = healthy_hosts(3);
  link(all, 1, 2).figures->received_bytes_per_s = 1.25e7;
  const auto found = diagnose(all);
  CHECK(found.notes ==
        Lines{"n1 to n2: 100 Mbit/s, where the usual is 10.0 Gbit/s: a job is as fast as its slowest link"});
  CHECK(found.passed.size() == 3);
}

TEST_CASE("of many links the slowest are shown, broken ones first") {
  auto all = healthy_hosts(12);
  break_link(all, 3, 4);
  const auto text = report_text(all, diagnose(all));
  CHECK(text.find("the 28 slowest of 66 links:\nn3   n4   broken\n") != std::string::npos);
}

TEST_CASE("a host's facts survive a round trip") {
  auto facts = *healthy(3).facts;
  facts.libraries = {"NCCL", "Open MPI"};
  CHECK(facts_from_json(to_json(facts)) == facts);
  CHECK_THROWS_AS(facts_from_json("{}"), Error);
  CHECK_THROWS_AS(facts_from_json("no JSON"), Error);
}

TEST_CASE("the test of a link measures both directions, and a server answers no other token") {
  LinkServer server("secret");
  std::thread serving([&] {
    while (server.serve_one()) continue;
  });
  const auto figures = test_link("127.0.0.1", server.port(), "secret", Deadline::in(std::chrono::seconds(20)));
  CHECK(figures.sent_bytes_per_s > 0);
  CHECK(figures.received_bytes_per_s > 0);
  CHECK(figures.round_trip.count() > 0);
  CHECK(std::chrono::abs(figures.clock_ahead) < std::chrono::seconds(1));  // it is the same clock
  try {
    test_link("127.0.0.1", server.port(), "public", Deadline::in(std::chrono::seconds(20)));
    FAIL("a wrong token was accepted");
  } catch (const Error& e) {
    CHECK(e.code() == Errc::connection_lost);
  }
  server.cancel();
  serving.join();
  CHECK_THROWS_AS(test_link("no address", 1, "", Deadline::in(std::chrono::seconds(20))), Error);
}
