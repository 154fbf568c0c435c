#include "tests/contract/store_contract.h"

#include <algorithm>
#include <future>
#include <set>
#include <thread>

#include "common/error.h"
#include "tests/support/catch.h"

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;

// The deadline is far longer than anything here takes; a test that needs it fails.
Deadline soon() {
  return Deadline::in(20s);
}
// The deadline for waits that must not succeed.
Deadline briefly() {
  return Deadline::in(50ms);
}

Errc code_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.code();
  }
  FAIL("no error");
  return Errc::internal;
}

void check_values(Store& s) {
  s.set("k", "v", soon());
  CHECK(s.get("k", soon()) == "v");
  s.set("k", "", soon());
  CHECK(s.get("k", soon()).empty());
  const std::string binary("\0\xff/\n", 4);
  s.set(binary, binary, soon());
  CHECK(s.get(binary, soon()) == binary);
  s.set("", "empty key", soon());
  CHECK(s.get("", soon()) == "empty key");
  s.append("log", "a", soon());
  s.append("log", "bc", soon());
  CHECK(s.get("log", soon()) == "abc");
}

void check_large_values(Store& s) {
  const std::string key(8000, 'k'), value(8 << 20, 'v');
  s.set(key, value, soon());
  CHECK(s.get(key, soon()) == value);
  CHECK(code_of([&] { s.set("too large", value + "x", soon()); }) == Errc::usage);
  CHECK(code_of([&] { s.get(std::string(8193, 'k'), soon()); }) == Errc::usage);
  CHECK(s.num_keys(soon()) == 1);  // and the store still works
}

void check_counters(Store& s) {
  CHECK(s.add("n", 5, soon()) == 5);
  CHECK(s.add("n", -7, soon()) == -2);
  CHECK(s.get("n", soon()) == "-2");
  s.set("n", " 12abc", soon());
  CHECK(s.add("n", 1, soon()) == 13);
  CHECK(s.add("n", 0, soon()) == 13);
}

void check_compare_set(Store& s) {
  CHECK(s.compare_set("cs", "X", "Y", soon()) ==
        "X");  // missing key with an expectation: nothing is stored, the expectation is returned
  CHECK_FALSE(s.check({"cs"}, soon()));
  CHECK(s.compare_set("cs", "", "A", soon()) == "A");
  CHECK(s.compare_set("cs", "", "B", soon()) == "A");
  CHECK(s.compare_set("cs", "B", "C", soon()) == "A");
  CHECK(s.compare_set("cs", "A", "C", soon()) == "C");
  CHECK(s.get("cs", soon()) == "C");
}

void check_batch(const StoreUnderTest& store) {
  const auto s = store.connect();
  s->set("there", "", soon());
  const auto results = s->execute({SetCall{"k", "v"}, AppendCall{"k", "w"}, AddCall{"n", 3}, AddCall{"n", -1},
                                   CompareSetCall{"cs", "", "A"}, CompareSetCall{"cs", "B", "C"}, FindCall{"k"},
                                   FindCall{"there"}, FindCall{"missing"}, SetWillCall{"will", "gone"}},
                                  soon());
  using Result = std::optional<std::string>;
  CHECK(results == StoreResults{Result(), Result(), "3", "2", "A", "A", "vw", "", Result(), Result()});
  CHECK(s->execute({}, soon()).empty());
  CHECK(s->get("n", soon()) == "2");
  auto another = store.connect();
  another->execute({SetWillCall{"of another", "gone"}, SetCall{"set", "1"}}, soon());
  CHECK(s->wait_get("set", soon()) == "1");
  another.reset();
  if (store.keeps_wills) CHECK(s->wait_get("of another", soon()) == "gone");
}

void check_erase_and_count(Store& s) {
  const auto before = s.num_keys(soon());
  s.multi_set({{"a", "1"}, {"b", "2"}, {"c", ""}}, soon());
  CHECK(s.num_keys(soon()) == before + 3);
  CHECK(s.multi_get({"c", "a", "a"}, soon()) == std::vector<std::string>{"", "1", "1"});
  CHECK(s.check({"a", "b", "c"}, soon()));
  CHECK(s.erase("b", soon()));
  CHECK_FALSE(s.erase("b", soon()));
  CHECK_FALSE(s.check({"a", "b", "c"}, soon()));
  auto keys = s.list_keys(soon());
  std::sort(keys.begin(), keys.end());
  CHECK(keys == std::vector<std::string>{"a", "c"});
}

void check_nothing_asked(Store& s) {
  CHECK(s.check({}, soon()));
  s.wait({}, soon());
  s.multi_set({}, soon());
  CHECK(s.multi_get({}, soon()).empty());
}

void check_queues(Store& s) {
  CHECK(s.queue_length("q", soon()) == 0);
  s.queue_push("q", "first", soon());
  s.queue_push("q", "", soon());
  CHECK(s.queue_length("q", soon()) == 2);
  CHECK(s.num_keys(soon()) == 0);
  CHECK(s.queue_pop("q", soon()) == "first");
  CHECK(s.queue_pop("q", soon()).empty());
  CHECK(code_of([&] { s.queue_pop("q", briefly()); }) == Errc::timeout);
}

void check_timeouts(Store& s) {
  try {
    s.wait({"here", "absent"}, briefly());
    FAIL("waited for nothing");
  } catch (const Error& e) {
    CHECK(e.code() == Errc::timeout);
    CHECK_THAT(e.what(), Catch::Contains("here") && Catch::Contains(" s"));
  }
  CHECK(code_of([&] { s.get("absent", briefly()); }) == Errc::timeout);
  CHECK(code_of([&] { s.wait_get("absent", briefly()); }) == Errc::timeout);
  CHECK(code_of([&] { s.multi_get({"absent"}, briefly()); }) == Errc::timeout);
  CHECK(code_of([&] { s.barrier("b", 2, briefly()); }) == Errc::timeout);
  // A wait that timed out leaves no state: the next replies are correct.
  s.set("absent", "here", soon());
  CHECK(s.get("absent", soon()) == "here");
  CHECK(s.add("n", 3, soon()) == 3);
}

void check_expired_deadline(Store& s) {
  const auto now = Deadline::in(0ms);
  CHECK(code_of([&] { s.get("k", now); }) == Errc::timeout);
  s.set("k", "v", soon());
  CHECK(s.get("k", now) == "v");  // nothing to wait for
  s.wait({"k"}, now);
  CHECK(s.get("k", soon()) == "v");
}

void check_bad_counter(const StoreUnderTest& store) {
  const auto s = store.connect();
  s->set("text", "no number", soon());
  s->set("full", "9223372036854775807", soon());
  CHECK(s->add("full", -1, soon()) == INT64_MAX - 1);
  if (store.refuses_by_closing) {
    const auto victim = store.connect();
    CHECK(code_of([&] { victim->add("text", 1, soon()); }) == Errc::connection_lost);
    CHECK(code_of([&] { victim->get("full", soon()); }) == Errc::connection_lost);  // the error is permanent
    CHECK(code_of([&] { store.connect()->add("full", 2, soon()); }) == Errc::connection_lost);
  } else {
    CHECK(code_of([&] { s->add("text", 1, soon()); }) == Errc::protocol);
    CHECK(code_of([&] { s->add("full", 2, soon()); }) == Errc::protocol);
  }
  CHECK(s->get("text", soon()) == "no number");
  CHECK(s->get("full", soon()) == "9223372036854775806");
}

// Each kind of change ends a wait of another client in another thread.
void check_waking(const StoreUnderTest& store) {
  const auto writer = store.connect();
  const std::vector<std::pair<const char*, std::function<void(const std::string&)>>> changes = {
      {"set", [&](auto& key) { writer->set(key, "1", soon()); }},
      {"add", [&](auto& key) { writer->add(key, 1, soon()); }},
      {"append", [&](auto& key) { writer->append(key, "1", soon()); }},
      {"compare_set", [&](auto& key) { writer->compare_set(key, "", "1", soon()); }},
      {"multi_set",
       [&](auto& key) {
         writer->multi_set({{"other " + key, ""}, {key, "1"}}, soon());
       }},
  };
  for (const auto& [name, change] : changes) {
    INFO(name);
    const std::string key = name;
    auto value = std::async(std::launch::async, [&] { return store.connect()->get(key, soon()); });
    auto both = std::async(std::launch::async, [&] { store.connect()->wait({"second " + key, key}, soon()); });
    auto values = std::async(std::launch::async, [&] {
      return store.connect()->multi_get({"second " + key, key}, soon());
    });
    auto second = std::async(std::launch::async, [&] { return store.connect()->wait_get("second " + key, soon()); });
    change(key);
    CHECK(value.get() == "1");
    writer->set("second " + key, "2", soon());
    both.get();
    CHECK(values.get() == std::vector<std::string>{"2", "1"});
    CHECK(second.get() == "2");
  }
}

void check_concurrent_counting(const StoreUnderTest& store) {
  constexpr int threads = 4, rounds = 50;
  std::vector<std::future<std::set<std::int64_t>>> results;
  for (int t = 0; t < threads; ++t)
    results.push_back(std::async(std::launch::async, [&] {
      const auto s = store.connect();
      std::set<std::int64_t> seen;
      for (int i = 0; i < rounds; ++i) seen.insert(s->add("n", 1, soon()));
      return seen;
    }));
  std::set<std::int64_t> all;
  for (auto& result : results) all.merge(result.get());
  CHECK(all.size() == threads * rounds);
  CHECK(*all.rbegin() == threads * rounds);
}

void check_barrier(const StoreUnderTest& store) {
  constexpr int count = 4;
  std::vector<std::future<std::int64_t>> entered;
  for (int i = 0; i < count; ++i)
    entered.push_back(std::async(std::launch::async, [&] {
      const auto s = store.connect();
      s->add("arrived", 1, soon());
      s->barrier("b", count, soon());
      return s->add("arrived", 0, soon());
    }));
  for (auto& arrived : entered) CHECK(arrived.get() == count);
}

void check_queue_between_clients(const StoreUnderTest& store) {
  constexpr int items = 20;
  std::vector<std::future<int>> consumers;
  for (int i = 0; i < 2; ++i)
    consumers.push_back(std::async(std::launch::async, [&] {
      const auto s = store.connect();
      int taken = 0;
      while (s->queue_pop("q", soon()) != "end") ++taken;
      return taken;
    }));
  const auto producer = store.connect();
  for (int i = 0; i < items; ++i) producer->queue_push("q", "item", soon());
  for (int i = 0; i < 2; ++i) producer->queue_push("q", "end", soon());
  CHECK(consumers[0].get() + consumers[1].get() == items);
}

void check_wills(const StoreUnderTest& store) {
  const auto survivor = store.connect();
  if (!store.keeps_wills) {
    CHECK(code_of([&] { survivor->set_will("dead", "1", soon()); }) == Errc::unsupported);
    return;
  }
  auto one = store.connect();
  one->set_will("first", "", soon());
  one->set_will("dead", "rank 1", soon());
  CHECK_FALSE(survivor->check({"dead"}, soon()));
  auto heard = std::async(std::launch::async, [&] { return store.connect()->get("dead", soon()); });
  one.reset();
  CHECK(heard.get() == "rank 1");
  CHECK_FALSE(survivor->check({"first"}, soon()));

  auto second = store.connect();
  second->set_will("dead", "rank 2", soon());
  auto careful = store.connect();
  careful->set_will("left", "", soon());
  careful->clear_will(soon());
  careful.reset();
  auto last = store.connect();
  last->set_will("last", "", soon());
  second.reset();
  last.reset();
  survivor->wait({"last"}, soon());
  CHECK(survivor->get("dead", soon()) == "rank 1");  // an existing key is not changed
  CHECK_FALSE(survivor->check({"left"}, soon()));
}

}  // namespace

void check_store_contract(const std::function<StoreUnderTest()>& make) {
  const auto store = make();
  SECTION("values") {
    check_values(*store.connect());
  }
  SECTION("large values") {
    check_large_values(*store.connect());
  }
  SECTION("counters") {
    check_counters(*store.connect());
  }
  SECTION("counters that are none") {
    check_bad_counter(store);
  }
  SECTION("compare and set") {
    check_compare_set(*store.connect());
  }
  SECTION("calls in a batch") {
    check_batch(store);
  }
  SECTION("erasing and counting") {
    check_erase_and_count(*store.connect());
  }
  SECTION("nothing asked") {
    check_nothing_asked(*store.connect());
  }
  SECTION("queues") {
    check_queues(*store.connect());
  }
  SECTION("timeouts") {
    check_timeouts(*store.connect());
  }
  SECTION("a deadline that has passed") {
    check_expired_deadline(*store.connect());
  }
  SECTION("waking") {
    check_waking(store);
  }
  SECTION("counting together") {
    check_concurrent_counting(store);
  }
  SECTION("a barrier") {
    check_barrier(store);
  }
  SECTION("a queue between clients") {
    check_queue_between_clients(store);
  }
  SECTION("wills") {
    check_wills(store);
  }
}

}  // namespace ddprun::testing
