// Groups that form again in processes that continue: with fewer members, with more, twice in a row, after a death and
// without one, over every back end.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <sys/stat.h>
#include <thread>
#include <utility>
#include <vector>

#include "worker/comm/init.h"
#include "tests/failure/elastic_job.h"
#include "tests/support/catch.h"
#include "tests/support/pages.h"

using namespace ddprun;
using namespace ddprun::failure;
using ddprun::testing::ForkedRanks;
using ddprun::testing::has_pages;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

// Returns the number of segments of this size that this process has open, and that have all of their pages.
int complete_segments(std::size_t bytes) {
  int count = 0;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    struct stat status {};
    if (::stat(each.path().c_str(), &status) != 0 || static_cast<std::size_t>(status.st_size) != bytes) continue;
    if (static_cast<std::size_t>(status.st_blocks) * 512 >= bytes) ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("the survivors of a kill form a group of their own") {
  for (const auto& backend : backends) {
    for (const int size : {2, 4, 8}) {
      INFO(backend << ", " << size << " ranks");
      ForkedRanks ranks(size, [&](int rank, std::uint16_t port) -> std::string {
        const auto store = connect(port);
        auto elastic = make_elastic(backend, rank, port);
        elastic.reconfigure(0, members_upto(size));
        const auto failure = reduce_until_failure(elastic.group(), *store);
        if (!contains(failure, "peer_lost: rank " + std::to_string(size - 1))) return failure;
        elastic.abort("a peer was lost");
        return works(elastic.reconfigure(1, members_upto(size - 1)));
      });
      await(ranks, "under way");
      ranks.signal(size - 1, SIGKILL);
      for (int rank = 0; rank < size - 1; ++rank)
        CHECK(ranks.result(rank, Deadline::in(test_timeout)) == expected(rank, size - 1));
    }
  }
}

TEST_CASE("after each of two kills the survivors form a group that works") {
  for (const auto& backend : backends) {
    for (const int size : {4, 8}) {
      INFO(backend << ", " << size << " ranks");
      ForkedRanks ranks(size, [&](int rank, std::uint16_t port) -> std::string {
        const auto store = connect(port);
        auto elastic = make_elastic(backend, rank, port);
        for (int lost = 0; lost < 2; ++lost) {
          elastic.reconfigure(static_cast<std::uint64_t>(lost), members_upto(size - lost));
          const auto failure = reduce_until_failure(elastic.group(), *store);
          if (!contains(failure, "peer_lost: rank " + std::to_string(size - lost - 1))) return failure;
        }
        return works(elastic.reconfigure(2, members_upto(size - 2)));
      });
      for (const int victim : {size - 1, size - 2}) {
        await(ranks, "under way");
        connect(ranks.store_port())->erase("under way", Deadline::in(test_timeout));
        ranks.signal(victim, SIGKILL);
      }
      for (int rank = 0; rank < size - 2; ++rank)
        CHECK(ranks.result(rank, Deadline::in(test_timeout)) == expected(rank, size - 2));
    }
  }
}

TEST_CASE("a healthy group shrinks, and then grows by a newcomer") {
  for (const auto& backend : backends) {
    for (const int size : {2, 4, 8}) {
      INFO(backend << ", " << size << " ranks");
      // The last process is the newcomer; the first one is dropped.
      ForkedRanks ranks(size + 1, [&](int rank, std::uint16_t port) -> std::string {
        auto elastic = make_elastic(backend, rank, port);
        const auto all = members_upto(size + 1);
        if (rank < size) elastic.reconfigure(0, members_upto(size)).barrier()->wait();
        if (rank == 0) return "dropped";
        if (rank < size) {
          const auto said = works(elastic.reconfigure(1, {all.begin() + 1, all.end() - 1}));
          if (said != expected(rank - 1, size - 1)) return said;
        }
        return works(elastic.reconfigure(2, {all.rbegin(), all.rend() - 1}));
      });
      CHECK(ranks.result(0, Deadline::in(test_timeout)) == "dropped");
      for (int rank = 1; rank <= size; ++rank)
        CHECK(ranks.result(rank, Deadline::in(test_timeout)) == expected(size - rank, size));
    }
  }
}

TEST_CASE("in shared memory the next generation's registered memory has its pages already") {
  ForkedRanks ranks(2, [](int rank, std::uint16_t port) -> std::string {
    auto elastic = make_elastic("shm", rank, port);
    const auto first = elastic.reconfigure(0, members_upto(2)).allocate(mib);
    if (has_pages(first.data(), first.bytes())) return "the first generation's memory has pages, too";
    for (const auto end = Deadline::in(test_timeout); complete_segments(mib) == 0; std::this_thread::yield())
      if (end.expired()) return "no memory is made ahead";
    const auto second = elastic.reconfigure(1, members_upto(2)).allocate(mib);
    return has_pages(second.data(), second.bytes()) ? "has pages" : "has no pages";
  });
  for (int rank = 0; rank < 2; ++rank) CHECK(ranks.result(rank, Deadline::in(test_timeout)) == "has pages");
}

TEST_CASE("a process that was in a group of its own has pages for the registered memory of its first generation") {
  ForkedRanks ranks(2, [](int rank, std::uint16_t port) -> std::string {
    const auto reserve = reserve_for_next_group();
    {
      const auto world = init_process_group({.backend = "auto", .config = {}, .env = {}, .previous_group = reserve});
      const auto first = world->group().allocate(mib);
      if (has_pages(first.data(), first.bytes())) return "the memory of its own group has pages, too";
      for (const auto end = Deadline::in(test_timeout); complete_segments(mib) == 0; std::this_thread::yield())
        if (end.expired()) return "no memory is made ahead";
    }
    auto options = options_for("shm", rank, 1, port);
    options.prefix = "job/";
    options.previous_group = reserve;
    ElasticGroup elastic("shm", options, std::to_string(rank));
    const auto memory = elastic.reconfigure(0, members_upto(2)).allocate(mib);
    return has_pages(memory.data(), memory.bytes()) ? "has pages" : "has no pages";
  });
  for (int rank = 0; rank < 2; ++rank) CHECK(ranks.result(rank, Deadline::in(test_timeout)) == "has pages");
}

TEST_CASE("a used generation and an invalid list are refused, and break nothing") {
  for (const auto& backend : backends) {
    for (const int size : {2, 4, 8}) {
      INFO(backend << ", " << size << " ranks");
      ForkedRanks ranks(size, [&](int rank, std::uint16_t port) -> std::string {
        const auto all = members_upto(size);
        auto elastic = make_elastic(backend, rank, port);
        auto& group = elastic.reconfigure(5, all);
        for (const std::uint64_t generation : {4, 5}) {
          const auto said = failure_of([&] { elastic.reconfigure(generation, all); });
          if (!contains(said, "usage: generation " + std::to_string(generation) + " is over")) return said;
        }
        const auto stranger = failure_of([&] { elastic.reconfigure(6, {"8", "9"}); });
        if (!contains(stranger, "usage: generation 6 cannot have the members [8, 9]")) return stranger;
        // The process does not know of the generation, as after a freeze.
        auto late = make_elastic(backend, rank, port);
        const auto said = failure_of([&] { late.reconfigure(5, all); });
        if (!contains(said, "usage: generation 5 has been formed before")) return said;
        return works(group);
      });
      for (int rank = 0; rank < size; ++rank)
        CHECK(ranks.result(rank, Deadline::in(test_timeout)) == expected(rank, size));
    }
  }
}

TEST_CASE("members that do not agree keep their group, and may try again under the same generation") {
  ForkedRanks ranks(3, [&](int rank, std::uint16_t port) -> std::string {
    const auto store = connect(port);
    auto elastic = make_elastic("shm", rank, port, 5s);
    auto& group = elastic.reconfigure(0, {"0", "1", "2"});
    if (rank == 2) {
      // This process is late, and finds that the others have cancelled.
      store->wait({"cancelled/0", "cancelled/1"}, Deadline::in(test_timeout));
    } else {
      const auto said = failure_of([&] { elastic.reconfigure(1, {"2", "1", "0"}); });
      if (!contains(said, "aborted: generation 1 was not formed, and the current group is unchanged")) return said;
      if (!contains(said, "for member 2")) return said;
      store->set("cancelled/" + std::to_string(rank), "", Deadline::in(test_timeout));
    }
    if (const auto said = works(group); said != expected(rank, 3)) return said;
    // In the next attempt ranks 0 and 1 propose different lists, and rank 2 does not take part.
    if (rank == 1) store->wait({"job/generation/1/attempt/1/joined/0"}, Deadline::in(test_timeout));
    if (rank < 2) {
      const auto list = rank == 0 ? Members{"0", "1", "2"} : Members{"2", "1", "0"};
      const auto said = failure_of([&] { elastic.reconfigure(1, list); });
      if (!contains(said, "[0, 1, 2]") || !contains(said, "[2, 1, 0]")) return said;
    }
    group.barrier()->wait();
    return works(elastic.reconfigure(1, {"2", "1", "0"}));
  });
  for (const int rank : {0, 1, 2}) CHECK(ranks.result(rank, Deadline::in(test_timeout)) == expected(2 - rank, 3));
}

TEST_CASE("members with different back ends keep their group, and fail to agree at once") {
  ForkedRanks ranks(2, [&](int rank, std::uint16_t port) -> std::string {
    auto elastic = make_elastic("gloo", rank, port);
    auto& group = elastic.reconfigure(0, {"0", "1"});
    auto next = make_elastic(rank == 0 ? "gloo" : "shm", rank, port);
    const auto said = failure_of([&] { next.reconfigure(1, {"0", "1"}); });
    for (const auto* part :
         {"mismatch: generation 1 was not formed", "back end gloo", "back end shm", "member 0 (pid ", "member 1 (pid "})
      if (!contains(said, part)) return said;
    return works(group);
  });
  for (const int rank : {0, 1}) CHECK(ranks.result(rank, Deadline::in(test_timeout)) == expected(rank, 2));
}

TEST_CASE("a member that dies while the others agree is named, and they continue without it") {
  for (const auto& backend : backends) {
    INFO(backend);
    ForkedRanks ranks(4, [&](int rank, std::uint16_t port) -> std::string {
      const auto store = connect(port);
      auto elastic = make_elastic(backend, rank, port);
      elastic.reconfigure(0, {"0", "1", "2", "3"});
      if (rank == 0) store->wait({"never"}, Deadline::in(test_timeout));
      const auto said = failure_of([&] { elastic.reconfigure(1, {"0", "1", "2", "3"}); });
      if (!contains(said, "aborted: generation 1 was not formed") || !contains(said, "member 3 (pid ")) return said;
      return works(elastic.reconfigure(2, {"1", "2"}));
    });
    await(ranks, "job/generation/1/attempt/0/joined/1");
    await(ranks, "job/generation/1/attempt/0/joined/2");
    await(ranks, "job/generation/1/attempt/0/joined/3");
    ranks.signal(3, SIGKILL);
    for (const int rank : {1, 2}) CHECK(ranks.result(rank, Deadline::in(test_timeout)) == expected(rank - 1, 2));
  }
}

TEST_CASE("an abort ends an agreement in progress for all members that wait in it") {
  ForkedRanks ranks(3, [&](int rank, std::uint16_t port) -> std::string {
    const auto store = connect(port);
    auto elastic = make_elastic("gloo", rank, port);
    elastic.reconfigure(0, {"0", "1", "2"});
    if (rank == 2) {
      store->wait({"done"}, Deadline::in(test_timeout));
      return "done";
    }
    std::thread aborter([&] {
      if (rank != 0) return;
      store->wait({"job/generation/1/attempt/0/joined/0", "job/generation/1/attempt/0/joined/1"},
                  Deadline::in(test_timeout));
      elastic.abort("the program says so");
    });
    const auto said = failure_of([&] { elastic.reconfigure(1, {"0", "1", "2"}); });
    aborter.join();
    return said;
  });
  CHECK(ranks.result(0, Deadline::in(test_timeout)) == "aborted: the program says so");
  const auto other = ranks.result(1, Deadline::in(test_timeout));
  INFO(other);
  CHECK(contains(other, "member 0 (pid "));
  CHECK(contains(other, "was aborted by its program"));
  connect(ranks.store_port())->set("done", "", Deadline::in(test_timeout));
}

// Member 1 agrees, and does not join the group.
TEST_CASE("an abort while the next group connects ends it with the caller's reason") {
  for (const auto& backend : backends) {
    INFO(backend);
    ForkedRanks ranks(2, [&](int rank, std::uint16_t port) -> std::string {
      const auto store = connect(port);
      if (rank == 1) {
        auto options = options_for(backend, 0, 1, port);
        options.prefix = "job/";
        options.connect_store = [&store, port] {
          if (store->check({"job/generation/0/attempt/0/decision"}, Deadline::in(test_timeout)))
            store->wait({"continue"}, Deadline::in(test_timeout));
          return connect(port);
        };
        ElasticGroup elastic(backend, options, "1");
        return failure_of([&] { elastic.reconfigure(0, {"0", "1"}); });
      }
      auto elastic = make_elastic(backend, rank, port);
      std::thread aborter([&] {
        store->wait({"job/generation/0/group/0/config"}, Deadline::in(test_timeout));
        elastic.abort("the program says so");
      });
      auto said = failure_of([&] { elastic.reconfigure(0, {"0", "1"}); });
      aborter.join();
      return said + "; " + failure_of([&] { elastic.group(); });
    });
    CHECK(ranks.result(0, Deadline::in(test_timeout)) ==
          "aborted: the program says so; usage: member 0 is in no group: generation 0 did not form");
    connect(ranks.store_port())->set("continue", "", Deadline::in(test_timeout));
    const auto other = ranks.result(1, Deadline::in(test_timeout));
    INFO(other);
    CHECK(contains(other, named(ranks, 0)));
  }
}

TEST_CASE("a generation that a newer one supersedes does not form, also if it begins to form later") {
  for (const auto& backend : backends) {
    INFO(backend);
    ForkedRanks ranks(2, [&](int rank, std::uint16_t port) -> std::string {
      auto elastic = make_elastic(backend, rank, port);
      elastic.reconfigure(0, members_upto(2));
      connect(port)->barrier("formed", 2, Deadline::in(test_timeout));
      if (rank == 0) {
        elastic.abort_before(2, "rank 1 was lost");
        if (const auto failure = failure_of([&] { elastic.group().barrier()->wait(); });
            failure != "aborted: rank 1 was lost")
          return "a group that stands: " + failure;
        if (const auto failure = failure_of([&] { elastic.reconfigure(1, members_upto(2)); });
            failure != "aborted: rank 1 was lost")
          return "a later call: " + failure;
      }
      auto& group = elastic.reconfigure(2, members_upto(2));
      elastic.abort_before(2, "late news");  // it concerns only older generations
      return works(group);
    });
    for (int rank = 0; rank < 2; ++rank) CHECK(ranks.result(rank, Deadline::in(test_timeout)) == expected(rank, 2));
  }
}

TEST_CASE("a member that loses the store while it agrees does not keep the others waiting") {
  ForkedRanks ranks(2, [&](int rank, std::uint16_t port) -> std::string {
    const auto store = connect(port);
    if (rank == 0) {
      auto elastic = make_elastic("gloo", rank, port);
      return failure_of([&] { elastic.reconfigure(0, {"0", "1"}); });
    }
    // A cancelled attempt fails the members that have joined it.
    store->wait({"job/generation/0/attempt/0/joined/0"}, Deadline::in(test_timeout));
    auto options = options_for("gloo", 0, 1, port);
    options.prefix = "job/";
    bool connected = false;
    options.connect_store = [&connected, port] {
      if (std::exchange(connected, true)) throw Error(Errc::unreachable, "no answer");
      return connect(port);
    };
    ElasticGroup elastic("gloo", options, "1");
    const auto said = failure_of([&] { elastic.reconfigure(0, {"0", "1"}); });
    store->wait({"the other knows"}, Deadline::in(test_timeout));
    return said;
  });
  const auto other = ranks.result(0, Deadline::in(test_timeout));
  INFO(other);
  CHECK(contains(other, "aborted: generation 0 was not formed"));
  CHECK(contains(other, "member 1 (pid "));
  connect(ranks.store_port())->set("the other knows", "", Deadline::in(test_timeout));
  CHECK(contains(ranks.result(1, Deadline::in(test_timeout)), "no answer"));
}

// Members that lose a store while their group forms reach the next one before they are told of it. What says there that
// they have gone is true of none.
TEST_CASE("members whose store has moved take nobody of the last generation for gone") {
  ForkedRanks ranks(2, [&](int rank, std::uint16_t port) -> std::string {
    const auto store = connect(port);
    auto elastic = make_elastic("gloo", rank, port);
    elastic.reconfigure(0, members_upto(2)).barrier()->wait();
    elastic.store_moved(false);
    store->wait({"job/generation/0/group/0/gone/0", "job/generation/0/group/0/gone/1"}, Deadline::in(test_timeout));
    if (!elastic.lost().empty()) return "a member is lost";
    return works(elastic.reconfigure(1, members_upto(2)));
  });
  for (const int rank : {0, 1}) CHECK(ranks.result(rank, Deadline::in(test_timeout)) == expected(rank, 2));
}

TEST_CASE("a member that cannot join the group that it agreed on reports the cause to the others") {
  ForkedRanks ranks(2, [&](int rank, std::uint16_t port) -> std::string {
    const auto store = connect(port);
    auto options = options_for("gloo", 0, 1, port);
    options.prefix = "job/";
    if (rank == 1) {
      options.connect_store = [&store, port] {
        if (store->check({"job/generation/0/attempt/0/decision"}, Deadline::in(test_timeout)))
          throw Error(Errc::unreachable, "no answer");
        return connect(port);
      };
    }
    ElasticGroup elastic("gloo", options, std::to_string(rank));
    const auto said = failure_of([&] { elastic.reconfigure(0, {"0", "1"}); });
    if (rank == 1) store->wait({"the other knows"}, Deadline::in(test_timeout));
    return said;
  });
  const auto other = ranks.result(0, Deadline::in(test_timeout));
  INFO(other);
  CHECK(contains(other, "rank 1 (pid "));
  CHECK(contains(other, ": no answer"));
  connect(ranks.store_port())->set("the other knows", "", Deadline::in(test_timeout));
  CHECK(contains(ranks.result(1, Deadline::in(test_timeout)), "no answer"));
}
