#include <chrono>

#include "rendezvous/store/memory_store.h"
#include "worker/comm/backends/shm/shm_group.h"
#include "worker/comm/bootstrap/job_store.h"
#include "worker/comm/elastic_group.h"
#include "worker/comm/group_options.h"
#include "worker/comm/init.h"
#include "worker/comm/registry/backends.h"
#include "tests/support/catch.h"
#include "tests/support/thread_group.h"

using namespace ddprun;
using std::chrono::milliseconds;

namespace {

template <class Change>
GroupOptions options_with(Change change) {
  GroupOptions options{.rank = 1, .size = 2, .connect_store = [] { return std::make_shared<MemoryStore>(); }};
  change(options);
  return options;
}

template <class Change>
std::string refusal(Change change) {
  try {
    comm::check(options_with(change));
  } catch (const Error& error) {
    CHECK(error.code() == Errc::usage);
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("invalid values are refused with their name and value") {
  CHECK(refusal([](GroupOptions&) {}) == "none");
  CHECK(refusal([](auto& o) { o.config.label = "a\nb"; }) ==
        "a process group's label cannot be of several lines: give one line");
  CHECK(refusal([](auto& o) { o.config.timeout = milliseconds(0); }) ==
        "a process group's timeout cannot be 0 ms: give 1 ms or more");
  CHECK(refusal([](auto& o) { o.config.timeout = milliseconds(-5); }) ==
        "a process group's timeout cannot be -5 ms: give 1 ms or more");
  CHECK(refusal([](auto& o) { o.config.timeout = milliseconds(1); }) == "none");
  CHECK(refusal([](auto& o) { o.config.timeout = milliseconds::max(); }) == "none");
  CHECK(refusal([](auto& o) { o.size = 0; }) == "a process group's size cannot be 0: it has at least one rank");
  CHECK(refusal([](auto& o) { o.rank = 2; }) == "a process group's rank cannot be 2: of 2, they are 0 to 1");
  CHECK(refusal([](auto& o) { o.rank = -1; }) == "a process group's rank cannot be -1: of 2, they are 0 to 1");
  CHECK(refusal([](auto& o) { o.config.freeze_bound = milliseconds(-1); }) ==
        "a process group's freeze_bound cannot be -1 ms: give 1 ms or more, or 0 for no limit");
  CHECK(refusal([](auto& o) { o.config.freeze_bound = milliseconds(0); }) == "none");
  CHECK(refusal([](auto& o) { o.config.heartbeat = milliseconds(0); }) ==
        "a process group's heartbeat cannot be 0 ms: give 1 ms or more, or none");
  CHECK(refusal([](auto& o) { o.config.concurrency = 0; }) ==
        "a process group's concurrency cannot be 0: give 1 or more");
}

TEST_CASE("staging_bytes is a multiple of the page size") {
  for (const std::size_t right : {4096u, 12'288u, 1u << 30})
    CHECK(refusal([&](auto& o) { o.config.staging_bytes = right; }) == "none");
  for (const std::size_t wrong :
       {std::size_t{0}, std::size_t{4095}, std::size_t{5000}, (std::size_t{1} << 30) + 4096, std::size_t{0} - 4096}) {
    CHECK(refusal([&](auto& o) { o.config.staging_bytes = wrong; }) ==
          fmt::format("a process group's staging_bytes cannot be {}: give a multiple of 4096, 1073741824 at most",
                      wrong));
  }
}

TEST_CASE("too little staging memory for the number of ranks is refused, naming a size that is enough") {
  const auto options_of = [](int size, std::size_t bytes) {
    return options_with([&](auto& options) {
      options.size = size;
      options.config.staging_bytes = bytes;
    });
  };
  CHECK_NOTHROW(comm::make_shm_transport(options_of(64, 4096)));
  CHECK_NOTHROW(comm::make_shm_transport(options_of(16384, CommConfig{}.staging_bytes)));
  CHECK_THROWS_WITH(comm::make_shm_transport(options_of(65, 4096)),
                    "staging_bytes 4096 is too small for the 65 ranks that share memory: set 8192 or more");
  CHECK_THROWS_WITH(comm::make_shm_transport(options_of(16385, CommConfig{}.staging_bytes)),
                    "staging_bytes 1048576 is too small for the 16385 ranks that share memory: set 1052672 or more");
}

TEST_CASE("the longest possible timeout does not overflow") {
  const auto groups = testing::make_thread_groups(2, milliseconds::max());
  std::vector<float> first{1}, second{2};
  const auto work = groups[0]->allreduce(span_of(first));
  groups[1]->allreduce(span_of(second))->wait();
  work->wait();
  CHECK(first.front() == 3);
  const auto alone = options_with([](auto& options) { options.config.timeout = milliseconds::max(); });
  CHECK(ElasticGroup("gloo", alone, "a").reconfigure(0, {"a"}).size() == 1);
}

// The error comes before the wait for the other rank, which does not exist.
TEST_CASE("every way to form a group checks its settings") {
  const auto none = options_with([](auto& options) { options.config.timeout = milliseconds(0); });
  const auto refuses = Catch::Contains("timeout cannot be 0 ms");
  for (const auto& backend : comm::backends()) {
    INFO(backend.name);
    CHECK_THROWS_WITH(comm::make_group(backend.name, none), refuses);
  }
  CHECK_THROWS_WITH(testing::make_thread_groups(2, milliseconds(0)), refuses);
  CHECK_THROWS_WITH(ElasticGroup("gloo", none, "a"), refuses);
  WorkerEnv second;
  second.rank = 1;
  second.world_size = 2;
  CHECK_THROWS_WITH(init_process_group({.config = {.timeout = milliseconds(0)}, .env = second}), refuses);
  CHECK_THROWS_WITH(init_process_group({.config = {.staging_bytes = 1000}, .env = second}),
                    Catch::Contains("staging_bytes"));
}

TEST_CASE("a store of this host may be silent for longer than a rank, unless a rank serves it") {
  const auto timeout = [](auto change) {
    return comm::store_timeout_of(options_with([&](GroupOptions& o) {
      o.config.freeze_bound = milliseconds(700);
      change(o);
    }));
  };
  CHECK(timeout([](auto&) {}) == milliseconds(700));
  CHECK(timeout([](auto& o) { o.beside_store = true; }) == milliseconds(7000));
  CHECK(timeout([](auto& o) {
          o.beside_store = true;
          o.store_host = 0;
        }) == milliseconds(700));
  CHECK(timeout([](auto& o) {
          o.config.freeze_bound = milliseconds(0);
          o.config.timeout = milliseconds(9000);
        }) == milliseconds(9000));
}

TEST_CASE("a process of a job bears the silence of its store as long as the job's group does, also where it waits") {
  const auto grace = [](bool agent_serves, const std::string& host) {
    WorkerEnv env;
    env.master_addr = host;
    env.master_port = 29500;
    env.use_agent_store = agent_serves;
    return comm::store_grace(env, {.freeze_bound = milliseconds(700)});
  };
  CHECK(grace(true, "127.0.0.1") == milliseconds(7000));
  CHECK(grace(false, "127.0.0.1") == milliseconds(700));
  CHECK(grace(true, "192.0.2.1") == milliseconds(700));
}
