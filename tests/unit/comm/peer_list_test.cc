#include "worker/comm/elastic/peer_list.h"

#include <algorithm>

#include "rendezvous/store/memory_store.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

Deadline soon() {
  return Deadline::in(10s);
}

std::string process_of(const std::string& name) {
  return "pid 4 of " + name;
}

// Returns the list of a generation that its members have joined; those of former were in the previous one.
PeerList peer_list(Store& store, std::uint64_t generation, const std::vector<std::string>& members,
                   const std::vector<std::string>& former = {}) {
  const auto prefix = std::to_string(generation) + "/";
  PeerList result{generation, prefix + "attempt/0/", prefix + "group/0/", members};
  for (int rank = 0; rank < static_cast<int>(members.size()); ++rank) {
    const auto& name = result.name_of(rank);
    const bool was_in = std::find(former.begin(), former.end(), name) != former.end();
    const JoinRecord joined{was_in ? std::optional(generation - 1) : std::nullopt, process_of(name)};
    store.set(result.joined_key(rank), encode(joined), soon());
  }
  return result;
}

ElasticMember lost(const std::string& name, int rank, const std::string& cause, bool may_run = false) {
  return {name, rank, process_of(name), cause, may_run};
}

}  // namespace

TEST_CASE("a member is lost that died, left or is named by a failure, and no other") {
  MemoryStore store;
  const auto abcd = peer_list(store, 1, {"a", "b", "c", "d"});
  CHECK(find_lost(store, abcd, soon()).empty());
  store.set(abcd.group + "failure", encode(GroupFailure{Errc::peer_lost, "c froze", {2}}), soon());
  CHECK(find_lost(store, abcd, soon()) == std::vector{lost("c", 2, "c froze", true)});
  {
    auto others = store.another_client();
    others->set_will(abcd.gone_key(0), "it died", soon());
  }
  { DepartureNotice(store.another_client()).move_to(abcd, 1, soon()); }
  CHECK(find_lost(store, abcd, soon()) ==
        std::vector{lost("a", 0, "it died"), lost("b", 1, "it left"), lost("c", 2, "c froze", true)});
}

TEST_CASE("a departure notice is for the last generation that its member was in") {
  MemoryStore store;
  const auto first = peer_list(store, 1, {"a", "b"}), second = peer_list(store, 2, {"b", "a"});
  {
    DepartureNotice notice(store.another_client());
    notice.move_to(first, 0, soon());
    notice.move_to(second, 1, soon());
  }
  CHECK(find_lost(store, first, soon()).empty());
  CHECK(find_lost(store, second, soon()) == std::vector{lost("a", 1, "it left")});
}

TEST_CASE("a change has the same newcomers for every member, and the members that are gone for those that were there") {
  MemoryStore store;
  const auto before = peer_list(store, 1, {"a", "b", "c"});
  const auto now = peer_list(store, 2, {"d", "a"}, {"a"});
  store.set(before.gone_key(2), "it died", soon());
  const auto seen_by_a = find_change(store, &before, now, soon());
  CHECK(seen_by_a.gone == std::vector{lost("b", 1, "it is not a member of generation 2"), lost("c", 2, "it died")});
  CHECK(seen_by_a.newcomers == std::vector{lost("d", 0, "")});
  const auto seen_by_d = find_change(store, nullptr, now, soon());
  CHECK(seen_by_d.gone.empty());
  CHECK(seen_by_d.newcomers == seen_by_a.newcomers);
}

TEST_CASE("a process that took the name of a lost member is a newcomer, and that member is gone") {
  MemoryStore store;
  const auto before = peer_list(store, 1, {"a", "b"}), now = peer_list(store, 2, {"a", "b"}, {"a"});
  store.set(before.gone_key(1), "it died", soon());
  const auto change = find_change(store, &before, now, soon());
  CHECK(change.gone == std::vector{lost("b", 1, "it died")});
  CHECK(change.newcomers == std::vector{lost("b", 1, "")});
}

TEST_CASE("all members of a first generation are newcomers, and so is one that was not in the last generation") {
  MemoryStore store;
  const auto first = peer_list(store, 1, {"a", "b"});
  CHECK(find_change(store, nullptr, first, soon()).newcomers.size() == 2);
  const auto third = peer_list(store, 3, {"a", "b"}, {"a", "b"});
  store.set(third.joined_key(1), encode(JoinRecord{1, process_of("b")}), soon());
  CHECK(find_change(store, &first, third, soon()).newcomers == std::vector{lost("b", 1, "")});
}

TEST_CASE("a join record survives encoding") {
  for (const auto& each : {JoinRecord{7, "pid 4 on host b"}, JoinRecord{std::nullopt, "pid 4 on host b"}})
    CHECK(decode_join_record(encode(each)) == each);
}
