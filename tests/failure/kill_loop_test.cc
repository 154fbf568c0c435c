// Ranks are killed at random times, repeatedly: every survivor gets a failure that names the rank, and no resource
// leaks. The long form runs at night.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sys/wait.h>

#include "worker/comm/elastic_group.h"
#include "tests/failure/job.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::failure;
using ddprun::testing::ForkedRanks;

namespace {

constexpr int size = 4;

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

std::set<std::string> named_segments() {
  std::set<std::string> names;
  for (const auto& each : std::filesystem::directory_iterator("/dev/shm")) {
    const auto name = each.path().filename().string();
    if (contains(name, "ddprun")) names.insert(name);
  }
  return names;
}

// Memory that this process shares with others. It has no name, and is freed with its last mapping.
std::size_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += contains(line, "/memfd:ddprun") ? 1 : 0;
  return count;
}

// Returns the number of open descriptors once it is the expected one. A connection to a process that has been killed
// may be given up some time after its group (MeshContext::destroy_later()).
std::size_t descriptors_left(std::size_t expected) {
  const auto limit = Deadline::in(test_timeout);
  while (open_descriptors() != expected && !limit.expired()) ::usleep(1000);
  return open_descriptors();
}

// Runs collectives and messages, small and large, many in progress, until one fails: all of them have to fail with the
// same error.
std::string work_until_failure(ProcessGroup& group) {
  constexpr std::size_t small = 30, smalls = 12;
  const int right = (group.rank() + 1) % group.size(), left = (group.rank() + group.size() - 1) % group.size();
  std::vector<float> many(small * smalls, 1.0f), large(20'000, 1.0f), copied(20'000, 1.0f), sent(500), received(500);
  std::string failure;
  while (failure.empty()) {
    std::vector<WorkPtr> works = {group.send(span_of(sent), right, 0), group.recv(span_of(received), left, 0)};
    for (std::size_t i = 0; i < smalls; ++i)
      works.push_back(group.allreduce({many.data() + i * small, small, DType::float32}, ReduceOp::average));
    works.push_back(group.allreduce(span_of(large), ReduceOp::average));
    works.push_back(group.broadcast(span_of(copied), 0));
    for (const auto& work : works) {
      try {
        work->wait();
      } catch (const Error& error) {
        if (!failure.empty() && failure != code_and_text(error)) return failure + ", and " + code_and_text(error);
        failure = code_and_text(error);
      }
    }
  }
  return failure;
}

// The course of a survivor: its group fails, it forms the next one with the other survivors, which works and is
// destroyed. Then no resource of either group may remain in the process.
std::string survive(const std::string& backend, int rank, int victim, std::uint16_t port) {
  const auto store = connect(port);
  const auto before = open_descriptors();
  {
    auto options = options_for(backend, rank, size, port);
    options.prefix = "job/";
    ElasticGroup elastic(backend, options, std::to_string(rank));
    std::vector<std::string> all, others;
    for (int r = 0; r < size; ++r) {
      all.push_back(std::to_string(r));
      if (r != victim) others.push_back(std::to_string(r));
    }
    std::string failure;
    try {
      elastic.reconfigure(0, all);
      store->set("formed/" + std::to_string(rank), "", Deadline::in(test_timeout));
      failure = work_until_failure(elastic.group());
    } catch (const Error& error) {
      failure = code_and_text(error);  // killed while the group formed
    }
    if (!contains(failure, std::to_string(victim) + " (pid ")) {
      std::fprintf(stderr, "rank %d: %s\n", rank, failure.c_str());  // the others wait for this rank now
      return failure;
    }
    auto& next = elastic.reconfigure(1, others);
    const auto memory = next.allocate(5'000 * sizeof(float));  // as large as the ranks' shared memory
    const auto values = memory.as<float>();
    std::ranges::fill(values, 1.0f);
    next.allreduce(Span{values.data(), values.size(), DType::float32}, ReduceOp::sum)->wait();
    if (values[0] != size - 1) return "the next group has a wrong sum";
  }
  if (const auto left = shared_mappings(); left != 0) return std::to_string(left) + " mappings are left";
  const auto after = descriptors_left(before);
  return after == before ? "survived" : std::to_string(after - before) + " descriptors are left";
}

void kill_at_random(const std::string& backend, int kills, unsigned seed) {
  std::mt19937 random(seed);
  const auto descriptors = open_descriptors();
  const auto segments = named_segments();
  for (int kill = 0; kill < kills; ++kill) {
    const int victim = std::uniform_int_distribution<int>(0, size - 1)(random);
    const int microseconds = std::uniform_int_distribution<int>(0, 60'000)(random);  // from joining to reducing
    INFO(backend << ", kill " << kill << " of seed " << seed << ": rank " << victim << " after " << microseconds
                 << " us");
    ForkedRanks ranks(size, [&](int rank, std::uint16_t port) { return survive(backend, rank, victim, port); });
    connect(ranks.store_port())->wait({"job/generation/0/attempt/0/decision"}, Deadline::in(test_timeout));
    ::usleep(static_cast<useconds_t>(microseconds));
    ranks.signal(victim, SIGKILL);
    for (int rank = 0; rank < size; ++rank) {
      if (rank != victim) REQUIRE(ranks.result(rank, Deadline::in(test_timeout)) == "survived");
    }
  }
  CHECK(open_descriptors() == descriptors);
  CHECK(named_segments() == segments);
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);  // no child, and so no zombie
  CHECK(errno == ECHILD);
}

}  // namespace

TEST_CASE("after random kills the survivors continue, and no resource leaks") {
  const auto seed = static_cast<unsigned>(std::random_device()());
  for (const auto& backend : backends) kill_at_random(backend, 10, seed);
}

TEST_CASE("two hundred random kills over every back end", "[.nightly]") {
  const auto seed = static_cast<unsigned>(std::random_device()());
  for (const auto& backend : backends) kill_at_random(backend, 200, seed);
}
