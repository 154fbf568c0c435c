// Ranks that join a group with different configurations: each gets an error that names both at once, long before any
// timeout, also while other ranks are missing.
#include <csignal>

#include "worker/comm/init.h"
#include "tests/failure/job.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::failure;
using ddprun::testing::ForkedRanks;

namespace {

// Returns the error of forming a group, or "no error".
std::string outcome_of(const std::string& backend, const GroupOptions& options) {
  try {
    comm::make_group(backend, options);
  } catch (const Error& error) {
    return code_and_text(error);
  }
  return "no error";
}

std::string result(ForkedRanks& ranks, int rank) {
  return ranks.result(rank, Deadline::in(test_timeout));
}

// Rank 0 has one value, rank 1 the other, and the errors of both name both; either may join first.
void check_both_named(ForkedRanks& ranks, const std::string& one, const std::string& other) {
  const auto said = result(ranks, 0);
  INFO(said);
  CHECK(contains(said, "mismatch: "));
  for (const auto& part : {one, other, named(ranks, 0), named(ranks, 1)}) CHECK(contains(said, part));
  CHECK(result(ranks, 1) == said);
}

}  // namespace

TEST_CASE("ranks with different back ends both fail at once") {
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"gloo", "shm"}, {"auto", "gloo"}, {"shm", "auto"}, {"hierarchical", "shm"}, {"nccl", "gloo"}};
  for (const auto& pair : pairs) {
    INFO(pair.first << " and " << pair.second);
    ForkedRanks ranks(2, [&](int rank, std::uint16_t port) {
      const auto& backend = rank == 0 ? pair.first : pair.second;
      return outcome_of(backend, options_for(backend, rank, 2, port));
    });
    check_both_named(ranks, "back end " + pair.first, "back end " + pair.second);
  }
}

TEST_CASE("ranks that differ in an option that has to be the same both fail at once") {
  using Change = void (*)(GroupOptions&);
  const struct {
    Change change;
    std::string one, other;
  } cases[] = {{[](GroupOptions& o) { o.size = 3; }, "size 2", "size 3"},
               {[](GroupOptions& o) { o.config.freeze_bound = 0ms; }, "freeze_bound 5000 ms", "freeze_bound 0 ms"},
               {[](GroupOptions& o) { o.config.heartbeat = 200ms; }, "heartbeat 100 ms", "heartbeat 200 ms"},
               {[](GroupOptions& o) { o.config.checked = false; }, "checked calls", "unchecked calls"},
               {[](GroupOptions& o) { o.config.staging_bytes = 4096; }, "staging_bytes 1048576", "staging_bytes 4096"}};
  for (const auto& each : cases) {
    INFO(each.other);
    ForkedRanks ranks(2, [&](int rank, std::uint16_t port) {
      auto options = options_for("gloo", rank, 2, port);
      options.config.checked = true;
      if (rank == 1) each.change(options);
      return outcome_of("gloo", options);
    });
    check_both_named(ranks, each.one, each.other);
  }
}

TEST_CASE("two ranks that disagree fail while others are missing, and so do those when they join") {
  ForkedRanks ranks(4, [](int rank, std::uint16_t port) {
    if (rank > 1) connect(port)->wait({"others may join"}, Deadline::in(test_timeout));
    return outcome_of(rank == 1 ? "shm" : "gloo", options_for("gloo", rank, 4, port));
  });
  check_both_named(ranks, "back end gloo", "back end shm");
  connect(ranks.store_port())->set("others may join", "", Deadline::in(test_timeout));
  for (const int late : {2, 3}) CHECK(contains(result(ranks, late), "back end shm"));
}

// One rank is missing: no process has its number.
TEST_CASE("two processes with the same rank fail, and so do the others") {
  for (const auto& backend : backends) {
    INFO(backend);
    ForkedRanks ranks(3, [&](int process, std::uint16_t port) {
      return outcome_of(backend, options_for(backend, std::min(process, 1), 3, port));
    });
    const auto said = result(ranks, 0);
    INFO(said);
    CHECK(contains(said, "mismatch: two processes are rank 1: pid "));
    for (const int twin : {1, 2}) {
      CHECK(contains(said, "pid " + std::to_string(ranks.pid(twin)) + " on host "));
      CHECK(result(ranks, twin) == said);
    }
  }
}

TEST_CASE("a rank that fails before it joins the group reports it to the others") {
  ForkedRanks ranks(2, [](int rank, std::uint16_t port) -> std::string {
    WorkerEnv env;
    env.rank = rank;
    env.world_size = 2;
    env.master_addr = "127.0.0.1";
    env.master_port = port;
    env.use_agent_store = true;
    try {
      init_process_group({.backend = rank == 0 ? "gloo" : "glue", .env = env});
    } catch (const Error& error) {
      return code_and_text(error);
    }
    return "no error";
  });
  const auto own = result(ranks, 1), reported = result(ranks, 0);
  INFO(own << "\n" << reported);
  CHECK(contains(own, "usage: there is no back end named glue"));
  CHECK(contains(reported, "usage: " + named(ranks, 1)));
  CHECK(contains(reported, "there is no back end named glue"));
}
