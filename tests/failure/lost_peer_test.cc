// The failures that the ranks of a group get, without waiting for a timeout, when a peer dies, freezes, is cut off or
// leaves. With several sizes over every back end.
#include <csignal>
#include <regex>
#include <unistd.h>

#include "worker/comm/subgroups.h"
#include "tests/failure/job.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::failure;
using ddprun::testing::ForkedRanks;

namespace {

// Each rank repeats an allreduce until it fails.
ForkedRanks reducing_ranks(const std::string& backend, int size, std::chrono::milliseconds freeze_bound = 5s) {
  return {size, [=](int rank, std::uint16_t port) {
            const auto store = connect(port);
            auto options = options_for(backend, rank, size, port);
            options.config.freeze_bound = freeze_bound;
            const auto group = comm::make_group(backend, options);
            return reduce_until_failure(*group, *store);
          }};
}

void check_failure(ForkedRanks& ranks, int rank, const std::vector<std::string>& parts) {
  const auto text = ranks.result(rank, Deadline::in(test_timeout));
  for (const auto& part : parts) {
    INFO("rank " << rank << ": " << text << "\nhas to contain: " << part);
    CHECK(contains(text, part));
  }
}

void check_others(ForkedRanks& ranks, int size, int lost, const std::string& said) {
  for (int rank = 0; rank < size; ++rank)
    if (rank != lost) check_failure(ranks, rank, {"peer_lost: " + named(ranks, lost), said});
}

}  // namespace

// The rank takes part in the parent group's allgather, and does not join the subgroup: no key of the subgroup names it.
TEST_CASE("a rank that dies before it joins a subgroup is named at once by those that wait for it there") {
  for (const auto& backend : backends) {
    INFO(backend);
    ForkedRanks ranks(4, [&](int rank, std::uint16_t port) -> std::string {
      const auto group = comm::make_group(backend, options_for(backend, rank, 4, port));
      if (rank == 3) {
        std::vector<std::int64_t> own{1, 0, 0}, all(12);  // as split() exchanges it
        group->allgather(span_of(own), span_of(all))->wait();
        connect(port)->wait({"never"}, Deadline::in(test_timeout));
      }
      try {
        split(*group, 0, 0);
      } catch (const Error& error) {
        return code_and_text(error);
      }
      return "no error";
    });
    for (const int rank : {0, 1, 2}) await(ranks, "group/0/sub/0.0/place/" + std::to_string(rank));
    ranks.signal(3, SIGKILL);
    for (const int rank : {0, 1, 2}) {
      const auto said = ranks.result(rank, Deadline::in(test_timeout));
      INFO(said);
      CHECK(contains(said, "peer_lost: " + named(ranks, 3)));
    }
  }
}

TEST_CASE("a killed rank is named by all others, without any timeout") {
  for (const auto& backend : backends) {
    for (const auto& [size, bound] : {std::pair(2, 5s), {3, 0s}, {4, 5s}, {8, 5s}}) {
      INFO(backend << ", " << size << " ranks");
      auto ranks = reducing_ranks(backend, size, bound);
      await(ranks, "under way");
      ranks.signal(size - 1, SIGKILL);
      check_others(ranks, size, size - 1, "was lost");
    }
  }
}

TEST_CASE("a killed rank is named though a child of its own keeps its connections open") {
  for (const auto& backend : backends) {
    INFO(backend);
    constexpr int size = 3;
    int child[2];
    REQUIRE(::pipe(child) == 0);
    {
      ForkedRanks ranks(size, [&](int rank, std::uint16_t port) {
        const auto store = connect(port);
        auto options = options_for(backend, rank, size, port);
        options.config.freeze_bound = 0ms;
        const auto group = comm::make_group(backend, options);
        if (rank == 1 && ::fork() == 0) {
          ::close(child[1]);
          char end;
          ::_exit(static_cast<int>(::read(child[0], &end, 1)));  // it runs until the test ends
        }
        return reduce_until_failure(*group, *store);
      });
      await(ranks, "under way");
      ranks.signal(1, SIGKILL);
      check_others(ranks, size, 1, "was lost");
    }
    ::close(child[0]);
    ::close(child[1]);
  }
}

TEST_CASE("a frozen rank is named by all others within the bound for it, without any timeout") {
  for (const auto& backend : backends) {
    for (const int size : {2, 4, 8}) {
      INFO(backend << ", " << size << " ranks");
      auto ranks = reducing_ranks(backend, size, silence_bound);
      await(ranks, "under way");
      ranks.signal(size / 2, SIGSTOP);
      check_others(ranks, size, size / 2, "its process is stopped");
    }
  }
}

TEST_CASE("a rank that cannot join its group is named by all others, with the reason") {
  for (const auto& backend : backends) {
    INFO(backend);
    constexpr int size = 3;
    ForkedRanks ranks(size, [&](int rank, std::uint16_t port) -> std::string {
      auto options = options_for(backend, rank, size, port);
      if (rank == 1) options.config.local_address = "no such interface";
      try {
        comm::make_group(backend, options);
      } catch (const Error& error) {
        return code_and_text(error);
      }
      return "no error";
    });
    for (int rank = 0; rank < size; ++rank)
      check_failure(ranks, rank, {"usage: ", "no such interface", rank == 1 ? "" : named(ranks, 1)});
  }
}

TEST_CASE("neighbours that freeze together are all named") {
  constexpr int size = 4;
  auto ranks = reducing_ranks("shm", size, silence_bound);
  await(ranks, "under way");
  for (const int rank : {1, 2}) ranks.signal(rank, SIGSTOP);
  for (const int rank : {0, 3}) {
    const auto text = ranks.result(rank, Deadline::in(test_timeout));
    INFO(text);
    CHECK(contains(text, named(ranks, 1)));
    CHECK(contains(text, named(ranks, 2)));
  }
}

TEST_CASE("a rank that freezes while no rank waits for it is found before one does") {
  constexpr int size = 2;
  ForkedRanks ranks(size, [](int rank, std::uint16_t port) -> std::string {
    const auto store = connect(port);
    auto options = options_for("gloo", rank, size, port);
    options.config.freeze_bound = silence_bound;
    const auto group = comm::make_group("gloo", options);
    group->barrier()->wait();
    if (rank == 1) {
      store->set("under way", "", Deadline::in(test_timeout));
      store->wait({"never"}, Deadline::in(test_timeout));
    }
    store->wait({"group/0/failure"}, Deadline::in(test_timeout));
    try {
      group->barrier()->wait();
    } catch (const Error& error) {
      return code_and_text(error);
    }
    return "no error";
  });
  await(ranks, "under way");
  ranks.signal(1, SIGSTOP);
  CHECK(contains(ranks.result(0, Deadline::in(test_timeout)), "peer_lost: " + named(ranks, 1)));
}

TEST_CASE("a frozen rank is lost by default after five seconds of silence") {
  constexpr int size = 2;
  ForkedRanks ranks(size, [](int rank, std::uint16_t port) {
    const auto store = connect(port);
    auto options = options_for("shm", rank, size, port);
    options.config.heartbeat.reset();
    const auto group = comm::make_group("shm", options);
    return reduce_until_failure(*group, *store);
  });
  await(ranks, "under way");
  ranks.signal(1, SIGSTOP);
  const auto text = ranks.result(0, Deadline::in(test_timeout));
  INFO(text);
  CHECK(contains(text, "peer_lost: " + named(ranks, 1)));
  std::smatch silence;
  REQUIRE(std::regex_search(text, silence, std::regex("sent no heartbeat for ([0-9.]+) s")));
  CHECK(std::stod(silence[1]) >= 4.5);  // it is seen up to half a heartbeat late
}

TEST_CASE("a frozen rank is waited for without a bound for silence, and within a long one") {
  for (const auto& backend : backends) {
    for (const auto bound : {0s, 60s}) {
      INFO(backend << ", bound " << bound.count() << " s");
      auto ranks = reducing_ranks(backend, 3, bound);
      await(ranks, "under way");
      const auto store = connect(ranks.store_port());
      ranks.signal(1, SIGSTOP);
      await_heartbeats(*store, 0, 10);
      ranks.signal(1, SIGCONT);
      CHECK_FALSE(store->check({"group/0/failure"}, Deadline::in(test_timeout)));
      ranks.signal(2, SIGKILL);
      check_others(ranks, 3, 2, "was lost");
    }
  }
}

TEST_CASE("without a bound for silence ranks that call different operations fail") {
  for (const auto& backend : backends) {
    INFO(backend);
    constexpr int size = 3;
    ForkedRanks ranks(size, [&](int rank, std::uint16_t port) -> std::string {
      auto options = options_for(backend, rank, size, port);
      options.config.freeze_bound = 0ms;
      const auto group = comm::make_group(backend, options);
      std::vector<float> values(rank == 1 ? 11 : 10);
      try {
        group->allreduce(span_of(values))->wait();
      } catch (const Error& error) {
        return code_and_text(error);
      }
      return "no error";
    });
    for (int rank = 0; rank < size; ++rank) check_failure(ranks, rank, {"mismatch: ", "10 float32", "11 float32"});
  }
}

TEST_CASE("the ends of a message fail that differ in its size or type, without any timeout") {
  for (const auto& backend : backends) {
    for (const auto& [sent, expected] : {std::pair(11, 10), {10, 11}}) {
      INFO(backend << ", " << sent << " sent");
      ForkedRanks ranks(3, [&, sent = sent, expected = expected](int rank, std::uint16_t port) -> std::string {
        const auto group = comm::make_group(backend, options_for(backend, rank, 3, port));
        std::vector<float> values(static_cast<std::size_t>(rank == 0 ? sent : expected)), more(5);
        try {
          for (int i = 0; i < 3; ++i) {
            if (rank == 0) group->send(span_of(more), 2, 4)->wait();
            if (rank == 2) group->recv(span_of(more), 0, 4)->wait();
          }
          const auto message = rank == 0   ? group->send(span_of(values), 2, 4)
                               : rank == 2 ? group->recv(span_of(values), 0, 4)
                                           : group->recv(span_of(values), 2, 4);
          message->wait();
          group->barrier()->wait();  // for a sender that does not wait for its receiver
        } catch (const Error& error) {
          return code_and_text(error);
        }
        return "no error";
      });
      for (int rank = 0; rank < 3; ++rank) {
        check_failure(ranks, rank,
                      {"mismatch: ", "send of " + std::to_string(sent) + " float32 to rank 2 with tag 4",
                       "recv of " + std::to_string(expected) + " float32 from rank 0 with tag 4"});
      }
    }
  }
}

TEST_CASE("an operation that times out names the rank that has not entered it, and its state, at every rank") {
  for (const auto& backend : backends) {
    for (const int size : {2, 4, 8}) {
      INFO(backend << ", " << size << " ranks");
      std::vector<std::string> failed;  // keys of all ranks but the last
      for (int rank = 0; rank + 1 < size; ++rank) failed.push_back("failed/" + std::to_string(rank));
      ForkedRanks ranks(size, [&](int rank, std::uint16_t port) -> std::string {
        const auto store = connect(port);
        const auto group = comm::make_group(backend, options_for(backend, rank, size, port));
        group->barrier()->wait();
        std::vector<float> values(10);
        try {
          if (rank == size - 1) store->wait(failed, Deadline::in(test_timeout));
          group->allreduce(span_of(values), {}, {.timeout = 500ms})->wait();
        } catch (const Error& error) {
          store->set("failed/" + std::to_string(rank), "", Deadline::in(test_timeout));
          return code_and_text(error);
        }
        return "no error";
      });
      for (int rank = 0; rank < size; ++rank) {
        check_failure(ranks, rank,
                      {"timeout: allreduce(sum) of 10 float32 #1 did not complete", named(ranks, size - 1),
                       "has not entered it: it is between operations; its last was barrier #0"});
      }
    }
  }
}

TEST_CASE("a receive from any rank that times out names what the others send") {
  for (const auto& backend : backends) {
    INFO(backend);
    ForkedRanks ranks(3, [&](int rank, std::uint16_t port) -> std::string {
      const auto store = connect(port);
      const auto group = comm::make_group(backend, options_for(backend, rank, 3, port));
      std::vector<float> values(1'000'000);
      try {
        if (rank == 0) store->wait({"calls/1", "calls/2"}, Deadline::in(test_timeout));
        const auto message = rank == 0   ? group->recv(span_of(values), any_source, 1, {.timeout = 1s})
                             : rank == 1 ? group->send(span_of(values), 0, 2)
                                         : group->recv(span_of(values), 1, 3);
        store->set("calls/" + std::to_string(rank), "", Deadline::in(test_timeout));
        message->wait();
      } catch (const Error& error) {
        return code_and_text(error);
      }
      return "no error";
    });
    for (int rank = 0; rank < 3; ++rank) {
      check_failure(ranks, rank,
                    {"timeout: recv of 1000000 float32 from any rank with tag 1 of rank 0 did not complete",
                     "no rank is in send of 1000000 float32 to rank 0 with tag 1", named(ranks, 1),
                     "is in send of 1000000 float32 to rank 0 with tag 2"});
    }
  }
}

TEST_CASE("a rank that leaves with no operation pending is no loss until another rank depends on it") {
  for (const auto& [backend, bound] :
       {std::pair("gloo", 2s), {"gloo", 0s}, {"shm", 2s}, {"shm", 0s}, {"hierarchical", 2s}}) {
    INFO(backend << ", bound " << bound.count() << " s");
    constexpr int size = 3;
    ForkedRanks ranks(size, [&, backend = backend, bound = bound](int rank, std::uint16_t port) -> std::string {
      const auto store = connect(port);
      auto options = options_for(backend, rank, size, port);
      options.config.freeze_bound = bound;
      const auto group = comm::make_group(backend, options);
      group->barrier()->wait();
      if (rank == 2) return "left";
      store->wait({"gone"}, Deadline::in(test_timeout));
      std::int32_t value = 7;
      const auto peer = 1 - rank;
      const Span memory{&value, 1, DType::int32};
      (rank == 0 ? group->send(memory, peer, 0) : group->recv(memory, peer, 0))->wait();
      store->barrier("transferred", 2, Deadline::in(test_timeout));
      return reduce_until_failure(*group, *store);
    });
    CHECK(ranks.result(2, Deadline::in(test_timeout)) == "left");
    const auto store = connect(ranks.store_port());
    const auto twice_the_bound = static_cast<std::uint64_t>(2 * bound / heartbeat);
    await_heartbeats(*store, 1, std::max<std::uint64_t>(twice_the_bound, 10));  // rank 1 watches the next rank
    store->set("gone", "", Deadline::in(test_timeout));
    for (const int rank : {0, 1}) {
      const auto text = ranks.result(rank, Deadline::in(test_timeout));
      INFO(text);
      CHECK(contains(text, "peer_lost: " + named(ranks, 2)));
      CHECK(contains(text, "left the group"));
    }
  }
}
