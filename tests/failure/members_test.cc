// ElasticGroup's reports about its members: those that are gone, their processes and the causes, and new ones.
#include <csignal>

#include "tests/failure/elastic_job.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::failure;
using ddprun::testing::ForkedRanks;

namespace {

std::string joined(const Members& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : " ") + name;
  return text;
}

// Returns "3 rank 3 pid 42: cause", a line each; without the host.
std::string text_of(const std::vector<ElasticMember>& members) {
  std::string text;
  for (const auto& each : members) {
    text += each.name + " rank " + std::to_string(each.rank) + " " + each.process.substr(0, each.process.find(" on ")) +
            (each.cause.empty() ? "" : ": " + each.cause) + "\n";
  }
  return text;
}
std::string text_of(const MembershipChange& change) {
  return "gone\n" + text_of(change.gone) + "new\n" + text_of(change.newcomers);
}

std::string member(const ForkedRanks& ranks, int process, int rank) {
  return std::to_string(process) + " rank " + std::to_string(rank) + " pid " + std::to_string(ranks.pid(process));
}

constexpr const char* died = "its process died or its connection broke\n";

std::string result(ForkedRanks& ranks, int rank) {
  return ranks.result(rank, Deadline::in(test_timeout));
}

}  // namespace

TEST_CASE(
    "the survivors of a kill know which member died before they reconfigure, and all members know the change after "
    "it") {
  for (const auto& backend : backends) {
    INFO(backend);
    // Process 4 replaces process 2.
    ForkedRanks ranks(5, [&](int process, std::uint16_t port) -> std::string {
      const auto store = connect(port);
      auto elastic = make_elastic(backend, process, port);
      if (process == 4) {
        elastic.reconfigure(1, {"4", "3", "1", "0"}).barrier()->wait();
        return "found lost\n" + text_of(elastic.change());
      }
      elastic.reconfigure(0, members_upto(4));
      if (elastic.change().newcomers.size() != 4 || !elastic.lost().empty()) return "not all are new";
      reduce_until_failure(elastic.group(), *store);
      const auto lost = text_of(elastic.lost());
      if (joined(elastic.survivors()) != "0 1 3") return joined(elastic.survivors());
      elastic.reconfigure(1, {"4", "3", "1", "0"});
      if (!elastic.lost().empty()) return "a member is still lost";
      elastic.group().barrier()->wait();
      return "found lost\n" + lost + text_of(elastic.change());
    });
    await(ranks, "under way");
    ranks.signal(2, SIGKILL);
    const auto victim = member(ranks, 2, 2), newcomer = "new\n" + member(ranks, 4, 0) + "\n";
    for (const int survivor : {0, 1, 3}) {
      const auto said = result(ranks, survivor);
      INFO(said);
      // The cause is from the victim's last will or the group's failure, whichever is first.
      CHECK(contains(said, "found lost\n" + victim + ": "));
      CHECK(contains(said, "gone\n" + victim + ": "));
      CHECK(contains(said, died + newcomer));
    }
    CHECK(result(ranks, 4) == "found lost\ngone\n" + newcomer);
  }
}

TEST_CASE("members that are killed at once are all left out, however late each death is found") {
  for (const auto& backend : backends) {
    INFO(backend);
    ForkedRanks ranks(6, [&](int process, std::uint16_t port) -> std::string {
      const auto store = connect(port);
      auto elastic = make_elastic(backend, process, port);
      elastic.reconfigure(0, members_upto(6));
      reduce_until_failure(elastic.group(), *store);
      for (std::uint64_t generation = 1;; ++generation) try {
          const auto said = works(elastic.reconfigure(generation, elastic.survivors()));
          return said + "\n" + text_of(elastic.change());
        } catch (const Error& error) {
          if (error.code() == Errc::aborted) --generation;
        }
    });
    await(ranks, "under way");
    for (const int victim : {2, 3, 5}) ranks.signal(victim, SIGKILL);
    for (const int survivor : {0, 1, 4}) {
      const auto said = result(ranks, survivor);
      INFO(said);
      CHECK(contains(said, expected(std::min(survivor, 2), 3)));
      for (const int victim : {2, 3, 5}) CHECK(contains(said, member(ranks, victim, victim) + ": "));
    }
  }
}

TEST_CASE("a list with a member that is gone is refused at once by the member that watches it") {
  ForkedRanks ranks(3, [](int process, std::uint16_t port) -> std::string {
    const auto store = connect(port);
    auto elastic = make_elastic("shm", process, port);
    elastic.reconfigure(0, members_upto(3));
    reduce_until_failure(elastic.group(), *store);
    if (process == 2) {
      store->wait({"refused"}, Deadline::in(test_timeout));
      return works(elastic.reconfigure(1, {"0", "2"}));
    }
    const auto said = failure_of([&] { elastic.reconfigure(1, members_upto(3)); });
    store->set("refused", "", Deadline::in(test_timeout));
    return said + works(elastic.reconfigure(1, elastic.survivors()));
  });
  await(ranks, "under way");
  ranks.signal(1, SIGKILL);
  const auto said = result(ranks, 0);
  INFO(said);
  CHECK(contains(said, "aborted: generation 1 was not formed, and the current group is unchanged: member 1 (pid " +
                           std::to_string(ranks.pid(1)) + " on host "));
  CHECK(contains(said, "is gone: "));
  CHECK(contains(said, expected(0, 2)));
  CHECK(result(ranks, 2) == expected(1, 2));
}

TEST_CASE("a member that freezes before it joins ends the agreement within the bound, not at the timeout") {
  for (const auto& backend : backends) {
    INFO(backend);
    ForkedRanks ranks(3, [&](int process, std::uint16_t port) -> std::string {
      const auto store = connect(port);
      auto elastic = make_elastic(backend, process, port, 10min, silence_bound);
      elastic.reconfigure(0, members_upto(3));
      if (process == 1) store->wait({"never"}, Deadline::in(test_timeout));
      return failure_of([&] { elastic.reconfigure(1, members_upto(3)); });
    });
    for (const auto* waiting : {"0", "2"}) await(ranks, std::string("job/generation/1/attempt/0/joined/") + waiting);
    ranks.signal(1, SIGSTOP);
    const auto said = result(ranks, 0);
    INFO(said);
    CHECK(contains(said, "aborted: generation 1 was not formed"));
    CHECK(contains(said, "member 1 (pid " + std::to_string(ranks.pid(1)) + " on host "));
    CHECK(contains(said, "is gone: rank 1 (pid "));
    CHECK(contains(said, "sent no heartbeat for "));
    CHECK(result(ranks, 2) == said);
  }
}

TEST_CASE("another process may take the name of a lost member") {
  ForkedRanks ranks(3, [](int process, std::uint16_t port) -> std::string {
    const auto store = connect(port);
    auto elastic = make_elastic("shm", std::min(process, 1), port);
    if (process == 2) {
      store->wait({"job/generation/1/attempt/0/joined/0"}, Deadline::in(test_timeout));
    } else {
      elastic.reconfigure(0, members_upto(2));
      reduce_until_failure(elastic.group(), *store);
      if (joined(elastic.survivors()) != "0") return "no member is lost";
    }
    const auto said = works(elastic.reconfigure(1, members_upto(2)));
    return said + "\n" + text_of(elastic.change());
  });
  await(ranks, "under way");
  ranks.signal(1, SIGKILL);
  const auto said = result(ranks, 0);
  INFO(said);
  CHECK(contains(said, expected(0, 2) + "\ngone\n1 rank 1 pid " + std::to_string(ranks.pid(1)) + ": "));
  CHECK(contains(said, "new\n1 rank 1 pid " + std::to_string(ranks.pid(2)) + "\n"));
}

TEST_CASE("the cause of a frozen member's loss is the group's failure") {
  for (const auto& backend : backends) {
    INFO(backend);
    ForkedRanks ranks(3, [&](int process, std::uint16_t port) -> std::string {
      const auto store = connect(port);
      auto elastic = make_elastic(backend, process, port, 10min, silence_bound);
      elastic.reconfigure(0, members_upto(3));
      reduce_until_failure(elastic.group(), *store);
      const auto lost = text_of(elastic.lost());
      return lost + works(elastic.reconfigure(1, elastic.survivors()));
    });
    await(ranks, "under way");
    ranks.signal(1, SIGSTOP);
    for (const int survivor : {0, 2}) {
      const auto said = result(ranks, survivor);
      INFO(said);
      CHECK(contains(said, member(ranks, 1, 1) + ": rank 1 (pid "));
      CHECK(contains(said, "sent no heartbeat for "));
      CHECK(contains(said, expected(survivor / 2, 2)));
    }
  }
}

TEST_CASE("a member that left is reported as such, and so is one that the new list lacks") {
  ForkedRanks ranks(4, [](int process, std::uint16_t port) -> std::string {
    const auto store = connect(port);
    auto elastic = make_elastic("gloo", process, port);
    elastic.reconfigure(0, members_upto(4)).barrier()->wait();
    if (process == 3) return "left";
    store->wait({"it has left"}, Deadline::in(test_timeout));
    const auto lost = text_of(elastic.lost());
    if (process == 2) {
      store->wait({"they have gone on"}, Deadline::in(test_timeout));
      return "dropped";
    }
    elastic.reconfigure(1, members_upto(2));
    return lost + text_of(elastic.change());
  });
  CHECK(result(ranks, 3) == "left");
  const auto store = connect(ranks.store_port());
  store->set("it has left", "", Deadline::in(test_timeout));
  const auto left = member(ranks, 3, 3) + ": it left\n";
  const auto dropped = member(ranks, 2, 2) + ": it is not a member of generation 1\n";
  for (const int process : {0, 1}) CHECK(result(ranks, process) == left + "gone\n" + dropped + left + "new\n");
  store->set("they have gone on", "", Deadline::in(test_timeout));
  CHECK(result(ranks, 2) == "dropped");
}
