#include "ddprun/worker/comm/elastic/agreement.h"

#include <map>

#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;

namespace {

using Members = std::vector<std::string>;

// The store as far as an agreement needs it, and one member after the other stepping through its requests.
struct Keys {
  std::map<std::string, std::string> values;
  std::map<std::string, std::int64_t> counters;

  std::string set_once(const std::string& key, const std::string& text) {
    return values.try_emplace(key, text).first->second;
  }
};

struct Member {
  Member(Keys& keys, std::uint64_t generation, const Members& members, const std::string& self,
         const std::string& terms = "back end gloo; size 3")
      : keys_(keys), agreement(generation, members, self, "pid 42 on host b", terms), request(agreement.begin()) {}

  std::string key(const std::string& name) const { return std::to_string(agreement.attempt()) + "/" + name; }

  // Until it waits or has ended.
  void run() {
    while (step()) {
    }
  }
  bool step() {
    if (std::holds_alternative<Agreement::Look>(request)) {
      const auto found = keys_.values.find(key("decision"));
      request = agreement.looked(found == keys_.values.end() ? std::nullopt : std::optional(found->second));
    } else if (const auto* propose = std::get_if<Agreement::Propose>(&request)) {
      request = agreement.proposed(keys_.set_once(key("proposal"), propose->text));
    } else if (const auto* count = std::get_if<Agreement::CountIn>(&request)) {
      will = count->will;
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
  void die() { keys_.set_once(key("decision"), will); }

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
  std::string will;
};

const Members abc = {"a", "b", "c"};

}  // namespace

TEST_CASE("members with one list commit once the last has come, and each knows its position") {
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

TEST_CASE("whoever's deadline passes cancels for all, naming who is missing, and a further attempt may succeed") {
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

TEST_CASE("a deadline that passes as the last one commits changes nothing") {
  Keys keys;
  Member a(keys, 1, {"a", "b"}, "a"), b(keys, 1, {"a", "b"}, "b");
  a.run();
  b.run();
  a.time_out({});
  a.run();
  CHECK(a.committed());
  CHECK(b.committed());
}

TEST_CASE("different lists are named at all, and nobody commits") {
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

TEST_CASE("different terms are named at all, and nobody commits") {
  Keys keys;
  Member a(keys, 1, abc, "a"), b(keys, 1, abc, "b", "back end shm; size 3");
  a.run();
  b.run();
  a.run();
  for (const auto* member : {&a, &b}) {
    CHECK(
        member->failed_with(Errc::aborted,
                            "member a (pid 42 on host b) asks for back end gloo, member b (pid 42 on host b) for back "
                            "end shm"));
  }
}

TEST_CASE("a member that dies, or gives up, while the others come cancels at once") {
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
  c.request = c.agreement.given_up();
  c.run();
  d.run();
  CHECK(d.failed_with(Errc::aborted, "member c (pid 42 on host b) was told to give up"));
}

TEST_CASE("a member that will not come is named at once by who knows it") {
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

TEST_CASE("a generation that was formed is refused") {
  Keys keys;
  Member a(keys, 4, {"a"}, "a"), again(keys, 4, abc, "b");
  a.run();
  again.run();
  CHECK(again.failed_with(Errc::usage, "generation 4 has been formed before"));
}

TEST_CASE("wrong lists are refused by name") {
  const auto refused = [](const Members& members, const std::string& text) {
    CHECK_THROWS_WITH(Agreement(3, members, "a", "pid 1", "any"),
                      Catch::Contains("generation 3") && Catch::Contains(text));
  };
  refused({}, "at least one");
  refused({"a", "b", "a"}, "a is named twice");
  refused({"b", "c"}, "this process, a, is not among them");
  refused({"a", ""}, "not empty");
  refused({"a", "b\nc"}, "a line of text");
}
