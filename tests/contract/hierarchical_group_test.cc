#include <algorithm>
#include <cstring>

#include "worker/comm/registry/auto_group.h"
#include "worker/comm/registry/host_group.h"
#include "tests/contract/store_groups.h"
#include "tests/support/catch.h"

// These tests emulate several hosts on one machine: by GroupOptions::host ranks run on different ones.
using namespace ddprun;

namespace {

using HostOf = int (*)(int rank);

GroupOptions on_host(GroupOptions options, HostOf host_of) {
  options.config.host = "host " + std::to_string(host_of(options.rank));
  return options;
}

template <class Make>
contract::Groups make_on(Make make, HostOf host_of, int size, std::chrono::milliseconds timeout) {
  return contract::make_groups([&](const GroupOptions& options) { return make(on_host(options, host_of)); }, size,
                               timeout);
}

int two_per_host(int rank) {
  return rank / 2;
}
int alternating(int rank) {
  return rank % 2;
}
int rank_1_alone(int rank) {
  return rank == 1 ? 1 : 0;
}

contract::Groups make_pairs(int size, std::chrono::milliseconds timeout) {
  return make_on(comm::make_hierarchical_group, two_per_host, size, timeout);
}
contract::Groups make_alternating(int size, std::chrono::milliseconds timeout) {
  return make_on(comm::make_hierarchical_group, alternating, size, timeout);
}
contract::Groups make_one_alone(int size, std::chrono::milliseconds timeout) {
  return make_on(comm::make_hierarchical_group, rank_1_alone, size, timeout);
}

std::string selected(HostOf host_of, int size) {
  const auto groups = make_on(comm::make_auto_group, host_of, size, contract::test_timeout);
  for (const auto& group : groups) CHECK(group->backend() == groups[0]->backend());
  return std::string(groups[0]->backend());
}

}  // namespace

TEST_CASE("auto selects a back end by which ranks share a host") {
  CHECK(selected(two_per_host, 2) == "shm");
  CHECK(selected(alternating, 2) == "gloo");
  CHECK(selected(two_per_host, 3) == "hierarchical");
  CHECK(selected(alternating, 4) == "hierarchical");
}

TEST_CASE("a large buffer moves through the levels in chunks and has the same bits at every rank") {
  for (const auto make : {make_pairs, make_one_alone}) {
    auto groups = make(4, contract::test_timeout);
    constexpr std::size_t count = 3'000'001;
    std::vector<std::vector<float>> results(4);
    contract::run_ranks(groups, [&](ProcessGroup& group) {
      auto& values = results[static_cast<std::size_t>(group.rank())];
      for (std::size_t i = 0; i < count; ++i) {
        values.push_back(static_cast<float>((i + static_cast<std::size_t>(group.rank())) % 1000) + 0.25f);
      }
      auto own = values;
      group.allreduce(span_of(values), ReduceOp::average)->wait();
      group.broadcast(span_of(own), 3)->wait();
      contract::expect(own[1] == 4.25f && own.back() == static_cast<float>((count + 2) % 1000) + 0.25f, "broadcast");
    });
    for (std::size_t i = 0; i < count; i += 997) {
      const auto mean = static_cast<float>((i % 1000 + (i + 1) % 1000 + (i + 2) % 1000 + (i + 3) % 1000) / 4.0 + 0.25);
      CHECK(results[0][i] == mean);
    }
    for (const auto& result : results) CHECK(std::memcmp(result.data(), results[0].data(), count * 4) == 0);
  }
}

TEST_CASE("registered memory works in two levels like other memory") {
  auto groups = make_pairs(4, contract::test_timeout);
  contract::run_ranks(groups, [](ProcessGroup& group) {
    constexpr std::size_t count = 500'001;
    const auto memory = group.allocate(count * sizeof(float));
    auto* const values = reinterpret_cast<float*>(memory.data());
    for (int round = 1; round <= 3; ++round) {
      std::fill(values, values + count, static_cast<float>(round * (group.rank() + 1)));
      group.allreduce(Span{values, count, DType::float32})->wait();
      const auto sum = static_cast<float>(10 * round);
      contract::expect(std::count(values, values + count, sum) == static_cast<std::ptrdiff_t>(count), "the sum");
    }
  });
}

DDPRUN_GROUP_CONTRACT("hierarchical, two ranks per host:", make_pairs, {1, 2, 3, 4, 5, 8})
DDPRUN_GROUP_CONTRACT("hierarchical, ranks on alternating hosts:", make_alternating, {3, 5})
DDPRUN_GROUP_CONTRACT("hierarchical, one rank alone on its host:", make_one_alone, {4})
