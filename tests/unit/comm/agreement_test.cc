#include "worker/comm/elastic/agreement.h"

#include <map>

#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;

namespace {

using Members = std::vector<std::string>;

// The part of a store that an agreement needs.
struct Keys {
  std::map<std::string, std::string> values;
  std::map<std::string, std::int64_t> counters;

  std::string set_once(const std::string& key, const std::string& text) {
    return values.try_emplace(key, text).first->second;
  }
};

GroupConfig config_of(const std::string& backend) {
  return {.backend = backend, .size = 3};
}

// One member that executes its requests on those keys, step by step.
struct Member {
  Member(Keys& keys, std::uint64_t generation, const Members& members, const std::string& self,
         const std::string& backend = "gloo")
      : keys_(keys),
        agreement(generation, members, self, "pid 42 on host b", config_of(backend)),
        request(agreement.begin()) {}

  std::string key(const std::string& name) const { return std::to_string(agreement.attempt()) + "/" + name; }

  // Runs until it waits or has a result.
  void run() {
    while (step()) {
    }
  }
  bool step() {
    if (const auto* propose = std::get_if<Agreement::Propose>(&request)) {
      const auto found = keys_.values.find(key("decision"));
      const auto decision = found == keys_.values.end() ? std::nullopt : std::optional(found->second);
      last_will = propose->last_will;
      request = agreement.proposed(decision, keys_.set_once(key("proposal"), propose->text));
    } else if (std::holds_alternative<Agreement::Join>(request)) {
      request = agreement.counted(++keys_.counters[key("count")]);
    } else if (const auto* decide = std::get_if<Agreement::Decide>(&request)) {
      request = agreement.decided(keys_.set_once(key("decision"), decide->text));
    } else if (std::holds_alternative<Agreement::Await>(request) && keys_.values.contains(key("decision"))) {
      request = agreement.decided(keys_.values[key("decision")]);
    } else {
      return false;
    }
    return true;
  }
  void time_out(const Members& missing) { request = agreement.deadline_passed(missing, 1.5); }
  void die() { keys_.set_once(key("decision"), last_will); }

  bool waits() const { return std::holds_alternative<Agreement::Await>(request); }
  bool committed() const { return std::holds_alternative<Agreement::Committed>(request); }
  Error failure() const { return std::get<Agreement::Failed>(request).error; }
  bool failed_with(Errc code, const std::string& text) const {
    const auto error = failure();
    INFO(error.what());
    CHECK(error.code() == code);
    CHECK_THAT(error.what(), Catch::Contains(text));
    return true;
  }

  Keys& keys_;
  Agreement agreement;
  Agreement::Request request;
  std::string last_will;
};

const Members abc = {"a", "b", "c"};

}  // namespace

TEST_CASE("members with one list commit once the last has joined, and each knows its position") {
  Keys keys;
  Member c(keys, 7, abc, "c"), a(keys, 7, abc, "a"), b(keys, 7, abc, "b");
  c.run();
  a.run();
  CHECK(c.waits());
  CHECK(a.waits());
  b.run();
  CHECK(b.committed());
  a.run();
  c.run();
  CHECK(a.committed());
  CHECK(c.committed());
  CHECK(a.agreement.position() == 0);
  CHECK(c.agreement.position() == 2);
}

TEST_CASE("a member alone agrees with itself") {
  Keys keys;
  Member a(keys, 0, {"a"}, "a");
  a.run();
  CHECK(a.committed());
}

TEST_CASE("a member whose deadline passes cancels for all, names the missing one, and a further attempt may succeed") {
  Keys keys;
  Member a(keys, 1, abc, "a"), b(keys, 1, abc, "b");
  a.run();
  b.run();
  a.time_out({"c"});
  a.run();
  b.run();
  CHECK(a.failed_with(Errc::aborted, "waited 1.5 s for member c"));
  CHECK(b.failed_with(Errc::aborted, "waited 1.5 s for member c"));

  std::vector<Member> again;
  for (const auto* name : {"c", "a", "b"}) again.emplace_back(keys, 1, abc, name);
  for (auto& member : again) member.run();
  for (auto& member : again) {
    member.run();
    CHECK(member.committed());
    CHECK(member.agreement.attempt() == 1);
  }
}

TEST_CASE("a deadline that passes after the last member committed changes nothing") {
  Keys keys;
  Member a(keys, 1, {"a", "b"}, "a"), b(keys, 1, {"a", "b"}, "b");
  a.run();
  b.run();
  a.time_out({});
  a.run();
  CHECK(a.committed());
  CHECK(b.committed());
}

TEST_CASE("different lists are named at every member, and none commits") {
  Keys keys;
  Member a(keys, 1, abc, "a"), b(keys, 1, {"a", "b"}, "b");
  a.run();
  b.run();
  a.run();
  for (const auto* member : {&a, &b}) {
    CHECK(member->failed_with(Errc::aborted, "member a (pid 42 on host b) proposes the members [a, b, c]"));
    CHECK(member->failed_with(Errc::aborted, "member b (pid 42 on host b) proposes [a, b]"));
  }
  Member order(keys, 2, {"b", "a"}, "a"), other(keys, 2, {"a", "b"}, "b");
  order.run();
  other.run();
  CHECK(other.failed_with(Errc::aborted, "proposes"));
}

TEST_CASE("different configurations are named at every member, and none commits") {
  Keys keys;
  Member a(keys, 1, abc, "a"), b(keys, 1, abc, "b", "shm");
  a.run();
  b.run();
  a.run();
  for (const auto* member : {&a, &b}) {
    CHECK(
        member->failed_with(Errc::mismatch,
                            "member a (pid 42 on host b) asks for back end gloo, member b (pid 42 on host b) for back "
                            "end shm"));
  }
}

TEST_CASE("a member that dies, or is aborted, while the others join cancels at once") {
  Keys keys;
  Member a(keys, 1, abc, "a"), b(keys, 1, abc, "b");
  a.run();
  b.run();
  b.die();
  a.run();
  CHECK(a.failed_with(Errc::aborted, "member b (pid 42 on host b) was lost"));

  Member c(keys, 1, abc, "c"), d(keys, 1, abc, "a");
  c.run();
  d.run();
  c.request = c.agreement.aborted();
  c.run();
  d.run();
  CHECK(d.failed_with(Errc::aborted, "member c (pid 42 on host b) was aborted by its program"));
}

TEST_CASE("a member that is gone is named at once by the one that finds it") {
  Keys keys;
  Member a(keys, 1, abc, "a"), b(keys, 1, abc, "b");
  a.run();
  b.run();
  a.request = a.agreement.lost("c", "pid 7 on host b", "it left");
  a.run();
  b.run();
  for (const auto* member : {&a, &b})
    CHECK(member->failed_with(Errc::aborted, "member c (pid 7 on host b) is gone: it left"));
}

TEST_CASE("a death after the commit does not undo it") {
  Keys keys;
  Member a(keys, 1, {"a", "b"}, "a"), b(keys, 1, {"a", "b"}, "b");
  a.run();
  b.run();
  b.die();
  a.run();
  CHECK(a.committed());
}

TEST_CASE("a generation that has been formed is refused") {
  Keys keys;
  Member a(keys, 4, {"a"}, "a"), again(keys, 4, abc, "b");
  a.run();
  again.run();
  CHECK(again.failed_with(Errc::usage, "generation 4 has been formed before"));
}

TEST_CASE("invalid lists are refused with the reason") {
  const auto refused = [](const Members& members, const std::string& text) {
    CHECK_THROWS_WITH(Agreement(3, members, "a", "pid 1", config_of("gloo")),
                      Catch::Contains("generation 3") && Catch::Contains(text));
  };
  refused({}, "at least one");
  refused({"a", "b", "a"}, "a is listed twice");
  refused({"b", "c"}, "this process, a, is not in the list");
  refused({"a", ""}, "not empty");
  refused({"a", "b\nc"}, "one line of text");
}
