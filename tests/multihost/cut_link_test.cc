// Process groups of two hosts whose link goes down: packets are dropped and no connection is closed. The ranks' store
// is on the first host, so the second host loses it too.
#include <sched.h>
#include <set>

#include <fmt/core.h>

#include "common/error.h"
#include "common/host_port.h"
#include "rendezvous/progress/rank_record.h"
#include "rendezvous/store/tcp_store.h"
#include "worker/comm/elastic_group.h"
#include "tests/failure/job.h"
#include "tests/multihost/hosts.h"
#include "tests/support/forked_ranks.h"
#include "tests/support/host_network.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace std::chrono_literals;
using failure::contains;

namespace {

constexpr auto freeze_bound = failure::silence_bound;
// The bound from the loss of the link to the result of each rank; it is shorter than every timeout of the group.
constexpr auto result_bound = failure::test_timeout;

std::string host_name(int host) {
  return "cut-" + std::to_string(host);
}

// One rank, on the first host or the second.
class CutRank {
 public:
  CutRank(const NetnsHosts& hosts, int rank, int ranks_per_host, std::uint16_t outer_port)
      : hosts_(hosts),
        rank_(rank),
        ranks_per_host_(ranks_per_host),
        host_(rank / ranks_per_host),
        network_(hosts.network(host_)),
        outer_(connect_outside(outer_port)) {
    if (::unshare(CLONE_NEWUTS) != 0 || ::sethostname(host_name(host_).data(), host_name(host_).size()) != 0)
      throw std::runtime_error("a host without a name of its own");
    if (rank == 0) {
      server_.emplace(StoreServerOptions{.host = hosts.address(0)});
      outer_->set("port", std::to_string(server_->port()), Deadline::in(failure::test_timeout));
    }
    port_ = static_cast<std::uint16_t>(std::stoi(outer_->get("port", Deadline::in(failure::test_timeout))));
  }

  // Runs allreduces until the group fails, and returns the failure. rank_known: the group knows that rank 0 has the
  // store; otherwise it knows only that the store is on the first host.
  std::string lose_store_host(const std::string& backend, bool rank_known) {
    auto described = options();
    described.rank = rank_;
    described.size = 2 * ranks_per_host_;
    if (rank_known) described.store_host = 0;
    described.beside_store = host_ == 0;
    const auto group = comm::make_group(backend, described);
    group->barrier()->wait();
    await_heartbeats(*described.connect_store(), text_of({described.prefix, rank_}));
    outer_->barrier("all ranks have read the records", described.size, Deadline::in(failure::test_timeout));
    const auto text = failure::reduce_until_failure(*group, *outer_);
    await_all();
    return text;
  }

  // The failure of the first group; on the first host followed by the result of an allreduce in the next group.
  std::string continue_without_peers(const std::string& backend) {
    ElasticGroup elastic(backend, options(), std::to_string(rank_));
    elastic.reconfigure(0, members(2 * ranks_per_host_));
    auto text = failure::reduce_until_failure(elastic.group(), *outer_);
    if (host_ == 0) {
      std::vector<float> values(1000, 1.0f);
      elastic.reconfigure(1, members(ranks_per_host_)).allreduce(span_of(values))->wait();
      text += fmt::format("; then a sum of {}", values.back());
    }
    await_all();
    return text;
  }

 private:
  std::shared_ptr<TcpStore> connect_outside(std::uint16_t port) const {
    const InNetwork outside(network_.outside());
    return failure::connect(port);
  }
  // Keeps all processes alive until every rank has its result: rank 0 serves the store, and both hosts are on one
  // machine, so ranks on the other host would see the end of a process.
  void await_all() {
    outer_->barrier("all ranks have failed", 2 * ranks_per_host_, Deadline::in(failure::test_timeout));
  }
  // Waits for three heartbeats of this rank after its first operation: by then it has read the records of all ranks.
  static void await_heartbeats(Store& store, const std::string& key) {
    std::set<std::uint64_t> beats;
    while (beats.size() < 3) {
      const auto record = decode_rank_record(store.get(key, Deadline::in(failure::test_timeout)));
      if (record && record->sequence > 0) beats.insert(record->beat);
    }
  }
  static std::vector<std::string> members(int count) {
    std::vector<std::string> names;
    for (int rank = 0; rank < count; ++rank) names.push_back(std::to_string(rank));
    return names;
  }
  GroupOptions options() const {
    return {
        .connect_store =
            [address = hosts_.address(0), port = port_] {
              return std::make_shared<TcpStore>(TcpStoreOptions{.host = address, .port = port, .grace = freeze_bound},
                                                Deadline::in(failure::test_timeout));
            },
        .prefix = "job/",
        .config = {.timeout = 10min, .local_address = "eth0", .host = host_name(host_), .freeze_bound = freeze_bound}};
  }

  const NetnsHosts& hosts_;
  const int rank_, ranks_per_host_, host_;
  const InNetwork network_;
  const std::shared_ptr<TcpStore> outer_;
  std::optional<StoreServerThread> server_;
  std::uint16_t port_ = 0;
};

// Where the other ranks of its host are silent, too, the host is named before it.
bool names_lost_rank(const std::string& text, const std::string& host, const std::string& rank) {
  return contains(text, "peer_lost: " + rank) ||
         contains(text, "peer_lost: host " + host + " is cut off from this one, or down: " + rank);
}

}  // namespace

TEST_CASE("when the link is lost every rank reports it, and the host with the store continues without the other") {
  need_hosts();
  for (const auto* backend : {"gloo", "hierarchical"}) {
    for (const int ranks_per_host : {1, 2, 4}) {
      INFO(backend << ", " << ranks_per_host << " ranks a host");
      NetnsHosts hosts(2);
      ForkedRanks ranks(2 * ranks_per_host, [&](int rank, std::uint16_t port) {
        return CutRank(hosts, rank, ranks_per_host, port).continue_without_peers(backend);
      });
      failure::await(ranks, "under way");
      hosts.link_down(1);
      const auto deadline = Deadline::in(result_bound);
      for (int rank = 0; rank < 2 * ranks_per_host; ++rank) {
        const auto text = ranks.result(rank, deadline);
        INFO("rank " << rank << ": " << text);
        if (rank < ranks_per_host) {
          CHECK(names_lost_rank(text, host_name(1), fmt::format("rank {} (pid ", ranks_per_host)));
          CHECK(contains(text, " on host " + host_name(1)));
          CHECK(contains(text, fmt::format("; then a sum of {}", ranks_per_host)));
        } else {
          CHECK(contains(text, fmt::format("{} on host {}) lost the group's store: store {}:", ranks.pid(rank),
                                           host_name(1), hosts.address(0))));
        }
      }
    }
  }
}

TEST_CASE("ranks that a lost link separates from the rank with the store name that rank and its host") {
  need_hosts();
  for (const auto* backend : {"gloo", "hierarchical"}) {
    INFO(backend);
    NetnsHosts hosts(2);
    ForkedRanks ranks(
        4, [&](int rank, std::uint16_t port) { return CutRank(hosts, rank, 2, port).lose_store_host(backend, true); });
    failure::await(ranks, "under way");
    hosts.link_down(1);
    const auto deadline = Deadline::in(result_bound);
    for (int rank = 0; rank < 4; ++rank) {
      const auto text = ranks.result(rank, deadline);
      INFO("rank " << rank << ": " << text);
      const int lost = rank < 2 ? 2 : 0;
      const auto host = host_name(lost == 2 ? 1 : 0);
      CHECK(names_lost_rank(text, host, fmt::format("rank {} (pid {} on host {})", lost, ranks.pid(lost), host)));
    }
  }
}

TEST_CASE("ranks that a lost link separates from a store that no rank serves name a rank on the store's host") {
  need_hosts();
  NetnsHosts hosts(2);
  ForkedRanks ranks(
      4, [&](int rank, std::uint16_t port) { return CutRank(hosts, rank, 2, port).lose_store_host("gloo", false); });
  failure::await(ranks, "under way");
  hosts.link_down(1);
  const auto deadline = Deadline::in(result_bound);
  for (int rank = 0; rank < 4; ++rank) {
    const auto text = ranks.result(rank, deadline);
    INFO("rank " << rank << ": " << text);
    const auto lost = [&](int other) {
      const auto host = host_name(other / 2);
      return names_lost_rank(text, host, fmt::format("rank {} (pid {} on host {})", other, ranks.pid(other), host));
    };
    CHECK((rank < 2 ? lost(2) || lost(3) : lost(0) || lost(1)));
    if (rank >= 2) CHECK(contains(text, "on whose host the store is"));
  }
}
