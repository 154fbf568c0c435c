#include "ddprun/worker/comm/backends/gloo/gloo_group.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <sched.h>
#include <thread>

#include "tests/contract/store_groups.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

contract::Groups make_gloo(int size, std::chrono::milliseconds timeout) {
  return contract::make_groups(comm::make_gloo_group, size, timeout);
}

}  // namespace

TEST_CASE("a transport that Gloo cannot carry collectives over is refused by name") {
  ::setenv("GLOO_DEVICE_TRANSPORT", "IBVERBS", 1);
  const auto error =
      contract::error_of([] { comm::make_gloo_transport({.size = 2, .config = {.local_address = "127.0.0.1"}}); });
  ::unsetenv("GLOO_DEVICE_TRANSPORT");
  CHECK(error.code() == Errc::unsupported);
  CHECK(std::string(error.what()).find("GLOO_DEVICE_TRANSPORT=IBVERBS") != std::string::npos);
}

// A sender holds the lock of its socket; a loop that took its place would wait for that lock awake.
TEST_CASE("the thread that serves the sockets takes no running thread's place") {
  const auto policies = [] {
    std::map<int, int> found;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
      ++found[::sched_getscheduler(std::stoi(task.path().filename()))];
    return found;
  };
  auto before = policies();
  const auto transport = comm::make_gloo_transport({.size = 2, .config = {.local_address = "127.0.0.1"}});
  auto with_it = policies();
  CHECK(with_it[SCHED_BATCH] > before[SCHED_BATCH]);  // a sanitizer may have begun a thread too
  CHECK(with_it[SCHED_OTHER] == before[SCHED_OTHER]);
}

namespace {

void expect_one_result(contract::Groups& groups, std::size_t count) {
  INFO(groups.size() << " ranks, " << count << " elements");
  const auto value = [](std::size_t i, int rank) {
    return 1.0f / static_cast<float>(1 + (i * 7 + static_cast<std::size_t>(rank) * 13) % 1009);
  };
  std::vector<std::vector<float>> results(groups.size());
  contract::run_ranks(groups, [&](ProcessGroup& group) {
    auto& values = results[static_cast<std::size_t>(group.rank())];
    for (std::size_t i = 0; i < count; ++i) values.push_back(value(i, group.rank()));
    group.allreduce(span_of(values), ReduceOp::sum)->wait();
  });
  for (const auto& result : results) CHECK(std::memcmp(result.data(), results[0].data(), count * 4) == 0);
  for (std::size_t i = 0; i < count; i += 101) {
    float sum = 0;
    for (const auto& group : groups) sum += value(i, group->rank());
    CHECK(results[0][i] == Approx(sum));
  }
}

}  // namespace

TEST_CASE("gloo groups give every rank the same bits, whichever way a size takes") {
  for (const int ranks_per_host : {8, 2}) {
    const auto make = [ranks_per_host](GroupOptions options) {
      options.config.host = "host " + std::to_string(options.rank / ranks_per_host);
      return comm::make_gloo_group(options);
    };
    for (const int size : {2, 3, 4, 5}) {
      auto groups = contract::make_groups(make, size, contract::patience);
      for (const std::size_t count : {3'000u, 12'000u, 30'001u, 80'003u, 300'007u, 700'001u})
        expect_one_result(groups, count);
    }
  }
}

// What its owner writes there from then on stays, and is not sent. It writes here and there alone: Gloo, were it still
// at it, would not be for long.
TEST_CASE("an abort in the middle of a large message gives its memory back to its owner") {
  constexpr std::size_t marks = 2'000, count = 4096 * marks;
  for (const auto delay : {0, 1, 2, 4, 8}) {
    auto groups = contract::make_groups(comm::make_gloo_group, 2, contract::patience);
    std::vector<std::vector<float>> memory{std::vector<float>(count, 1), std::vector<float>(count, 1)};
    contract::run_ranks(groups, [&](ProcessGroup& group) {
      auto& values = memory[static_cast<std::size_t>(group.rank())];
      const auto message = group.rank() == 0 ? group.send(span_of(values), 1, 0) : group.recv(span_of(values), 0, 0);
      const std::jthread aborting([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(delay));  // wherever it is then
        if (group.rank() == 1) group.abort("enough");
      });
      try {
        message->wait();  // it may be through before the abort
      } catch (const Error& error) {
        contract::expect(error.code() == (group.rank() == 1 ? Errc::aborted : Errc::peer_lost), error.what());
      }
      for (auto i = static_cast<std::size_t>(group.rank()); i < count; i += count / marks) values[i] = 2;
    });
    groups.clear();
    for (const auto& values : memory) CHECK(std::accumulate(values.begin(), values.end(), 0.0) == count + marks);
  }
}

TEST_CASE("checked gloo groups compare every call") {
  const auto make = [](GroupOptions options) {
    options.config.checked = true;
    options.config.heartbeat = std::chrono::hours(1);  // nobody looks at the neighbour
    return comm::make_gloo_group(options);
  };
  for (const int size : {2, 3}) {
    auto groups = contract::make_groups(make, size, contract::patience);
    contract::run_ranks(groups, [&](ProcessGroup& group) {
      std::vector<float> values(10);
      group.allreduce(span_of(values), ReduceOp::sum)->wait();
      const auto error =
          contract::error_of([&] { group.broadcast(span_of(values), group.rank() == 0 ? 0 : 1)->wait(); });
      contract::expect(error.code() == Errc::mismatch, error.what());
      for (const auto* part :
           {"rank 0", "broadcast of 10 float32 from rank 0", "broadcast of 10 float32 from rank 1"}) {
        contract::expect(std::string(error.what()).find(part) != std::string::npos, error.what());
      }
    });
  }
}

namespace {

// No rank has a timeout; the last call of each is one that its peers cannot answer.
void expect_disagreement(int size, const contract::RankBody& calls, std::vector<std::string> names) {
  auto groups = contract::make_groups(
      [](GroupOptions options) {
        options.config.checked = false;
        return comm::make_gloo_group(options);
      },
      size, std::chrono::hours(1));
  contract::run_ranks(groups, [&](ProcessGroup& group) {
    const auto error = contract::error_of([&] { calls(group); });
    contract::expect(error.code() == Errc::mismatch, error.what());
    for (const auto& name : names) {
      contract::expect(std::string(error.what()).find(name) != std::string::npos, error.what());
    }
  });
}

void wait_in_vain(ProcessGroup& group) {
  std::vector<float> values(1);
  group.recv(span_of(values), (group.rank() + 1) % group.size(), 0)->wait();
}

}  // namespace

TEST_CASE("gloo groups name two roots of one broadcast, without comparing calls") {
  for (const int size : {2, 3}) {
    expect_disagreement(size,
                        [](ProcessGroup& group) {
                          std::vector<float> values(10);
                          group.broadcast(span_of(values), group.rank() == 0 ? 0 : 1)->wait();
                          wait_in_vain(group);
                        },
                        {"broadcast of 10 float32 from rank 0", "broadcast of 10 float32 from rank 1"});
  }
}

// The ranks on both sides of the one that differs are done with it, and in the next operation.
TEST_CASE("gloo groups name an operation that differs where others have gone on") {
  expect_disagreement(4,
                      [](ProcessGroup& group) {
                        std::vector<float> values(group.rank() == 2 ? 11 : 10);
                        group.broadcast(span_of(values), 0)->wait();
                        group.barrier()->wait();
                      },
                      {"broadcast of 10 float32", "rank 2", "broadcast of 11 float32"});
}

TEST_CASE("gloo groups name operations that differ and that were done without meeting anybody") {
  expect_disagreement(2,
                      [](ProcessGroup& group) {
                        std::vector<float> values(group.rank() == 0 ? 0 : 10);
                        group.allreduce(span_of(values))->wait();
                        wait_in_vain(group);
                      },
                      {"allreduce(sum) of 0 float32", "allreduce(sum) of 10 float32"});
  expect_disagreement(2,
                      [](ProcessGroup& group) {
                        std::vector<float> values(5);
                        const Counts all_mine = group.rank() == 0 ? Counts{5, 0} : Counts{0, 5};
                        group.scatterv(span_of(values), all_mine, span_of(values), group.rank())->wait();
                        wait_in_vain(group);
                      },
                      {"scatterv of 5 float32 in all from rank 0", "scatterv of 5 float32 in all from rank 1"});
}

TEST_CASE("checked gloo groups compare the parts of all_to_allv") {
  const auto make = [](GroupOptions options) {
    options.config.checked = true;
    return comm::make_gloo_group(options);
  };
  auto groups = contract::make_groups(make, 2, contract::patience);
  contract::run_ranks(groups, [&](ProcessGroup& group) {
    std::vector<float> input(4), output(4);
    const Counts even = {2, 2}, less = group.rank() == 0 ? Counts{2, 1} : Counts{1, 2};
    const auto error = contract::error_of([&] {
      group.all_to_allv(span_of(input), even, {output.data(), 3, DType::float32}, less)->wait();
    });
    contract::expect(error.code() == Errc::mismatch, error.what());
    contract::expect(std::string(error.what()).find("2 elements, and that expects 1") != std::string::npos,
                     error.what());
  });
}

DDPRUN_GROUP_CONTRACT("gloo", make_gloo, {1, 2, 3, 4, 5, 8})
