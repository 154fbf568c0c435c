#include <csignal>
#include <cstdio>
#include <map>

#include <fmt/core.h>

#include "common/error.h"
#include "rendezvous/store/tcp_store.h"
#include "worker/comm/registry/backends.h"
#include "tests/multihost/hosts.h"
#include "tests/support/forked_ranks.h"
#include "tests/support/host_network.h"

// Process groups across hosts. The ranks' store is outside the hosts, so that the link carries only the bytes of the
// groups.
using namespace ddprun;
using namespace ddprun::testing;

namespace {

constexpr std::chrono::seconds timeout{60};

// Two hosts with ranks 0, 1, ... on the first and the rest on the second.
class RankOnHost {
 public:
  RankOnHost(const NetnsHosts& hosts, int rank, int ranks_per_host, std::uint16_t store_port)
      : rank_(rank),
        size_(2 * ranks_per_host),
        host_(rank / ranks_per_host),
        store_port_(store_port),
        network_(hosts.network(host_)) {}

  std::unique_ptr<ProcessGroup> join(const std::string& backend, const std::string& address) const {
    GroupOptions options{.rank = rank_, .size = size_};
    options.connect_store = [this] {
      const InNetwork outside(network_.outside());
      return std::make_shared<TcpStore>(TcpStoreOptions{.host = "127.0.0.1", .port = store_port_},
                                        Deadline::in(timeout));
    };
    options.prefix = backend + "/";
    options.config.timeout = timeout;
    options.config.local_address = address;
    options.config.host = "host " + std::to_string(host_);
    options.config.heartbeat = std::chrono::milliseconds(200);
    return comm::make_group(backend, options);
  }

  int host() const { return host_; }

 private:
  const int rank_, size_, host_;
  const std::uint16_t store_port_;
  const InNetwork network_;
};

std::string sum_of(ProcessGroup& group) {
  std::vector<float> values(100'000, static_cast<float>(group.rank() + 1));
  group.allreduce(span_of(values))->wait();
  return fmt::format("{} {}", values.front(), values.back());
}

// The value that each rank's body returns, or what() of the exception that it throws.
template <class Body>
std::vector<std::string> results_of(const NetnsHosts& hosts, int ranks_per_host, Body body) {
  ForkedRanks ranks(2 * ranks_per_host,
                    [&](int rank, std::uint16_t port) { return body(RankOnHost(hosts, rank, ranks_per_host, port)); });
  std::vector<std::string> results;
  for (int rank = 0; rank < 2 * ranks_per_host; ++rank) results.push_back(ranks.result(rank, Deadline::in(timeout)));
  return results;
}

}  // namespace

TEST_CASE("between hosts a loopback address is replaced by the address of the route to the other hosts") {
  need_hosts();
  const NetnsHosts hosts(2);
  for (const auto* backend : {"gloo", "hierarchical"}) {
    const auto results = results_of(hosts, 2, [&](const RankOnHost& rank) {
      return sum_of(*rank.join(backend, rank.host() == 0 ? "127.0.0.1" : "eth0"));
    });
    CHECK(results == std::vector<std::string>(4, "10 10"));
  }
}

TEST_CASE("if a host has only loopback addresses the error says to set the interface") {
  need_hosts();
  const NetnsHosts hosts(2);
  const auto results = results_of(hosts, 1, [&](const RankOnHost& rank) { return sum_of(*rank.join("gloo", "")); });
  for (const auto& result : results) {
    INFO(result);
    CHECK(result.find("GLOO_SOCKET_IFNAME") != std::string::npos);
    CHECK(result.find("127.0.0.1") != std::string::npos);
  }
}

TEST_CASE("a hierarchical allreduce sends two thirds of a flat ring's bytes over the link") {
  need_hosts();
  const NetnsHosts hosts(2);
  constexpr std::size_t count = 1 << 20;
  const auto results = results_of(hosts, 2, [&](const RankOnHost& rank) {
    std::map<std::string, double> sent;  // per byte of the buffer
    for (const auto* backend : {"gloo", "hierarchical"}) {
      const auto group = rank.join(backend, "eth0");
      std::vector<float> values(count, 1);
      const auto before = bytes_sent("eth0");
      group->barrier()->wait();  // no rank starts before all have read the counter
      group->allreduce(span_of(values))->wait();
      group->barrier()->wait();
      sent[backend] = static_cast<double>(bytes_sent("eth0") - before) / (count * sizeof(float));
      if (values != std::vector<float>(count, 4)) return std::string("a wrong sum");
    }
    return fmt::format("{:.2f} {:.2f}", sent["gloo"], sent["hierarchical"]);
  });
  for (const auto& result : results) {
    INFO(result);
    double flat = 0, hierarchical = 0;
    REQUIRE(std::sscanf(result.c_str(), "%lf %lf", &flat, &hierarchical) == 2);
    CHECK(flat >= 1.5);
    CHECK(hierarchical >= 1.0);
    CHECK(hierarchical < 1.15);  // headers, acknowledgements, the barriers
  }
}

TEST_CASE("a rank of the other host that is killed is named at every rank") {
  need_hosts();
  const NetnsHosts hosts(2);
  ForkedRanks ranks(4, [&](int number, std::uint16_t port) {
    const RankOnHost rank(hosts, number, 2, port);
    const auto group = rank.join("hierarchical", "eth0");
    std::vector<float> values(1 << 20, 1);
    group->allreduce(span_of(values))->wait();
    if (number == 3) std::raise(SIGKILL);
    try {
      for (;;) group->allreduce(span_of(values))->wait();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  });
  for (int rank = 0; rank < 3; ++rank) {
    const auto result = ranks.result(rank, Deadline::in(timeout));
    INFO(result);
    CHECK(result.find("rank 3") != std::string::npos);
    CHECK(result.find(fmt::format("pid {}", ranks.pid(3))) != std::string::npos);
  }
}
