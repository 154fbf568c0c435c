#include "rendezvous/store/store_state.h"

#include "common/bytes.h"
#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using Views = std::vector<std::string_view>;

namespace {

struct Store {
  StoreState state;

  std::vector<Reply> apply(ConnectionId from, const Request& request) {
    std::vector<Reply> replies;
    state.apply(from, request, replies);
    return replies;
  }
  // Returns the only reply, to the sender; any other result fails the test.
  std::string ask(ConnectionId from, const Request& request) {
    const auto replies = apply(from, request);
    REQUIRE(replies.size() == 1);
    CHECK(replies[0].to == from);
    return replies[0].bytes;
  }
  // Returns the connections whose wait a request ends.
  std::vector<ConnectionId> released_by(const Request& request, ConnectionId from = 99) {
    std::vector<ConnectionId> released;
    for (const auto& reply : apply(from, request))
      if (reply.to != from) {
        CHECK(reply.bytes == std::string(1, '\0'));
        released.push_back(reply.to);
      }
    return released;
  }
  void wait(ConnectionId from, const Views& keys) { CHECK(apply(from, WaitRequest{keys}).empty()); }
  std::vector<Reply> close(ConnectionId id) {
    std::vector<Reply> replies;
    state.close(id, replies);
    return replies;
  }
  std::string value(std::string_view key) { return ask(98, GetRequest{key}).substr(8); }
  // Returns whether no connection waits or has a last will, and none is told of a key that one waited for.
  bool has_no_clients() const {
    Store after = *this;
    std::vector<Reply> replies;
    for (ConnectionId id = 0; id < 100; ++id) {
      if (after.state.is_waiting(id)) return false;
      after.state.close(id, replies);
    }
    if (after.state.num_keys() != state.num_keys()) return false;
    for (const std::string_view key : {"a", "b", "c", "k", "l", "bar", "dead", "left"})
      after.state.apply(99, SetRequest{key, ""}, replies);
    return replies.empty();
  }
};

std::string vec(std::string_view bytes) {
  std::string out;
  put_vec(out, bytes);
  return out;
}
std::string i64(std::int64_t value) {
  std::string out;
  put_i64(out, value);
  return out;
}
const std::string zero(1, '\0'), one(1, '\1');
using Ids = std::vector<ConnectionId>;

}  // namespace

TEST_CASE("the compare_set table") {
  Store s;
  CHECK(s.ask(1, CompareSetRequest{"k", "X", "Y"}) == vec("X"));  // missing, with an expected value
  CHECK(s.ask(1, CheckRequest{Views{"k"}}) == one);
  CHECK(s.ask(1, CompareSetRequest{"k", "", "A"}) == vec("A"));   // missing, without an expected value
  CHECK(s.ask(1, CompareSetRequest{"k", "A", "B"}) == vec("B"));  // equal
  CHECK(s.ask(1, CompareSetRequest{"k", "A", "C"}) == vec("B"));  // different
  CHECK(s.ask(1, CompareSetRequest{"k", "", "C"}) == vec("B"));
  CHECK(s.value("k") == "B");
  s.apply(1, SetRequest{"empty", ""});
  CHECK(s.ask(1, CompareSetRequest{"empty", "", "D"}) == vec("D"));
}

TEST_CASE("compare_set ends waits only if it stores a value") {
  Store s;
  s.wait(1, {"k"});
  CHECK(s.released_by(CompareSetRequest{"k", "X", "Y"}).empty());
  CHECK(s.released_by(CompareSetRequest{"k", "", "Y"}) == Ids{1});
}

TEST_CASE("counters are parsed as by strtoll") {
  CHECK(parse_counter("12abc", "k") == 12);
  CHECK(parse_counter(" \t\n\v\f\r-3", "k") == -3);
  CHECK(parse_counter("+4", "k") == 4);
  CHECK(parse_counter("007", "k") == 7);
  CHECK(parse_counter("-9223372036854775808", "k") == INT64_MIN);
  for (const auto* text :
       {"", " ", "abc", "+-1", "-+1", "+", "-", "- 1", "9223372036854775808", "-9223372036854775809"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_counter(text, "k"), Error);
  }
  CHECK(counter_sum("9223372036854775806", 1, "k") == INT64_MAX);
  CHECK_THROWS_AS(counter_sum("9223372036854775807", 1, "k"), Error);
  CHECK_THROWS_AS(counter_sum("-2", INT64_MIN, "k"), Error);
}

TEST_CASE("an add that is refused changes nothing") {
  Store s;
  s.apply(1, SetRequest{"text", "x"});
  s.apply(1, SetRequest{"full", "9223372036854775807"});
  for (const auto& request : {Request(AddRequest{"text", 1}), Request(AddRequest{"full", 1}),
                              Request(BarrierRequest{"text", 2}), Request(BarrierRequest{"full", 2})})
    CHECK_THROWS_AS(s.apply(1, request), Error);
  CHECK(s.value("text") == "x");
  CHECK(s.value("full") == "9223372036854775807");
  CHECK(s.has_no_clients());
}

TEST_CASE("append has the same limit as set") {
  Store s;
  s.apply(1, SetRequest{"k", std::string(max_value_bytes, 'x')});
  s.apply(1, AppendRequest{"k", ""});
  CHECK_THROWS_AS(s.apply(1, AppendRequest{"k", "x"}), Error);
  CHECK(s.value("k").size() == max_value_bytes);
}

TEST_CASE("a request whose reply exceeds the limit is refused before the reply is built") {
  Store s;
  s.apply(1, SetRequest{"k", std::string(max_value_bytes, 'x')});
  CHECK_THROWS_AS(s.apply(1, MultiGetRequest{Views(33, "k")}), Error);
  CHECK(s.ask(1, MultiGetRequest{Views(2, "k")}).size() == 2 * (8 + max_value_bytes));
}

TEST_CASE("missing values are empty, and an empty multi_get has no reply") {
  Store s;
  CHECK(s.ask(1, GetRequest{"k"}) == vec(""));
  CHECK(s.ask(1, MultiGetRequest{Views{"k", "l"}}) == vec("") + vec(""));
  CHECK(s.apply(1, MultiGetRequest{}).empty());
  CHECK(s.ask(1, CheckRequest{}) == zero);
  CHECK(s.ask(1, WaitRequest{}) == zero);
}

TEST_CASE("the probe is answered only if it is the single key, and is not a stored key") {
  Store s;
  CHECK(s.ask(1, CheckRequest{Views{probe_key}}) == zero);
  CHECK(s.ask(1, CheckRequest{Views{probe_key, probe_key}}) == one);
  CHECK(s.ask(1, CheckRequest{Views{"/ddprun/2"}}) == one);
  CHECK(s.ask(1, NumKeysRequest{}) == i64(0));
  CHECK(s.ask(1, ListKeysRequest{}) == i64(0));
}

TEST_CASE("a wait ends when the last of its keys exists, whichever request sets it") {
  const KeyValueView pair[] = {{"k", "v"}};
  for (const auto& change : {Request(SetRequest{"k", ""}), Request(AddRequest{"k", 1}), Request(AppendRequest{"k", ""}),
                             Request(MultiSetRequest{pair}), Request(CompareSetRequest{"k", "", "v"})}) {
    Store s;
    s.apply(9, SetRequest{"there", ""});
    s.wait(1, {"there", "k", "l"});
    s.wait(2, {"k"});
    CHECK(s.released_by(change) == Ids{2});
    CHECK(s.released_by(change).empty());
    CHECK(s.released_by(SetRequest{"l", ""}) == Ids{1});
    CHECK(s.has_no_clients());
  }
}

TEST_CASE("a key deleted during a wait counts as present, a key named twice counts once") {
  Store s;
  s.wait(1, {"a", "b", "a"});
  s.apply(9, SetRequest{"a", ""});
  s.apply(9, DeleteKeyRequest{"a"});
  CHECK(s.released_by(SetRequest{"b", ""}) == Ids{1});
  CHECK(s.ask(1, CheckRequest{Views{"a"}}) == one);
}

TEST_CASE("deleting a key ends no wait and cancels none") {
  Store s;
  s.wait(1, {"k"});
  CHECK(s.released_by(DeleteKeyRequest{"k"}).empty());
  CHECK(s.released_by(SetRequest{"k", ""}) == Ids{1});
}

TEST_CASE("cancelling always answers 1, and no 0 comes after it") {
  Store s;
  CHECK(s.ask(1, CancelWaitRequest{}) == one);
  s.wait(1, {"a", "b"});
  s.apply(9, SetRequest{"a", ""});
  CHECK(s.ask(1, CancelWaitRequest{}) == one);
  CHECK(s.has_no_clients());
  CHECK(s.released_by(SetRequest{"b", ""}).empty());
  s.wait(1, {"c"});  // and it can wait again
  CHECK(s.released_by(SetRequest{"b", ""}).empty());
  CHECK(s.released_by(SetRequest{"c", ""}) == Ids{1});
}

TEST_CASE("a connection that closes loses its registrations") {
  Store s;
  s.wait(1, {"a", "b"});
  s.wait(2, {"a"});
  s.apply(3, BarrierRequest{"bar", 2});
  s.apply(4, WaitGetRequest{"a"});
  for (const ConnectionId id : {1, 3, 4}) CHECK(s.close(id).empty());
  CHECK(s.released_by(SetRequest{"a", ""}) == Ids{2});
  CHECK(s.released_by(SetRequest{"b", ""}).empty());
  CHECK(s.has_no_clients());
}

TEST_CASE("a second wait while one is pending is refused, other requests are served") {
  Store s;
  s.wait(1, {"a"});
  for (const auto& request : {Request(WaitRequest{}), Request(WaitGetRequest{"b"}), Request(WaitMultiGetRequest{}),
                              Request(BarrierRequest{"b", 1})})
    CHECK_THROWS_AS(s.apply(1, request), Error);
  CHECK(s.ask(1, CheckRequest{Views{"b"}}) == one);
  CHECK(s.ask(1, AddRequest{"n", 1}) == i64(1));
}

TEST_CASE("a connection may satisfy its own wait") {
  Store s;
  s.wait(1, {"a"});
  const auto replies = s.apply(1, AddRequest{"a", 4});
  REQUIRE(replies.size() == 2);
  CHECK(replies[0].bytes == i64(4));
  CHECK(replies[1].bytes == zero);
  CHECK(replies[1].to == 1);
}

TEST_CASE("wait_get replies with the value at the time it is set") {
  Store s;
  CHECK(s.apply(1, WaitGetRequest{"k"}).empty());
  CHECK(s.apply(9, QueuePushRequest{"k", "item"}).empty());  // an item is not a value
  const auto replies = s.apply(9, SetRequest{"k", "v"});
  REQUIRE(replies.size() == 1);
  CHECK(replies[0].to == 1);
  CHECK(replies[0].bytes == zero + vec("v"));
  CHECK(s.ask(1, WaitGetRequest{"k"}) == zero + vec("v"));
  CHECK(s.has_no_clients());
}

TEST_CASE("wait_multi_get replies once all keys have values") {
  Store s;
  s.apply(9, SetRequest{"a", "1"});
  CHECK(s.apply(1, WaitMultiGetRequest{Views{"b", "a", "c", "b"}}).empty());
  CHECK(s.released_by(SetRequest{"c", "3"}).empty());
  CHECK(s.apply(9, QueuePushRequest{"b", "item"}).empty());  // an item is not a value
  const auto replies = s.apply(9, SetRequest{"b", "2"});
  REQUIRE(replies.size() == 1);
  CHECK(replies[0].to == 1);
  CHECK(replies[0].bytes == zero + vec("2") + vec("1") + vec("3") + vec("2"));
  CHECK(s.ask(1, WaitMultiGetRequest{Views{"c", "a"}}) == zero + vec("3") + vec("1"));
  CHECK(s.ask(1, WaitMultiGetRequest{}) == zero);
  CHECK(s.has_no_clients());
}

TEST_CASE("values that are too long for a reply make it a byte of its own") {
  Store s;
  s.apply(9, SetRequest{"long", std::string(max_value_bytes, 'v')});
  const std::vector<std::string_view> keys(max_reply_bytes / max_value_bytes + 1, "long");
  CHECK(s.ask(1, WaitMultiGetRequest{keys}) == std::string(1, '\2'));
  CHECK(s.has_no_clients());
}

TEST_CASE("wait_get cancelled before and after its answer") {
  Store s;
  s.apply(1, WaitGetRequest{"k"});
  CHECK(s.ask(1, CancelWaitRequest{}) == one);
  s.apply(1, WaitGetRequest{"k"});
  s.apply(9, SetRequest{"k", "v"});
  CHECK(s.ask(1, CancelWaitRequest{}) == one);
  CHECK(s.has_no_clients());
}

TEST_CASE("queues are first in, first out, and separate from keys") {
  Store s;
  s.apply(1, QueuePushRequest{"q", "a"});
  s.apply(1, QueuePushRequest{"q", "b"});
  CHECK(s.ask(1, QueueLengthRequest{"q"}) == i64(2));
  CHECK(s.ask(1, NumKeysRequest{}) == i64(0));
  CHECK(s.ask(1, CheckRequest{Views{"q"}}) == zero);
  CHECK(s.ask(1, WaitRequest{Views{"q"}}) == zero);
  CHECK(s.ask(1, DeleteKeyRequest{"q"}) == i64(0));
  CHECK(s.ask(1, QueuePopRequest{"q"}) == i64(2) + vec("a"));
  CHECK(s.ask(1, QueuePopRequest{"q"}) == i64(1) + vec("b"));
  CHECK(s.ask(1, QueuePopRequest{"q"}) == i64(0));
  CHECK(s.ask(1, CheckRequest{Views{"q"}}) == one);
}

TEST_CASE("each queue item ends the oldest wait") {
  Store s;
  s.wait(3, {"q"});
  s.wait(1, {"q", "other"});
  s.wait(2, {"q"});
  CHECK(s.released_by(QueuePushRequest{"q", "a"}) == Ids{3});
  CHECK(s.released_by(QueuePushRequest{"q", "b"}) == Ids{2});  // connection 1 still waits for another key
  CHECK(s.released_by(QueuePushRequest{"q", "c"}).empty());
  CHECK(s.released_by(SetRequest{"other", ""}) == Ids{1});
}

TEST_CASE("a barrier releases all callers at the last one, and stays open") {
  Store s;
  CHECK(s.apply(1, BarrierRequest{"b", 3}).empty());
  CHECK(s.apply(2, BarrierRequest{"b", 3}).empty());
  const auto replies = s.apply(3, BarrierRequest{"b", 3});
  REQUIRE(replies.size() == 3);
  CHECK(replies[0].to == 3);
  CHECK(replies[1].to == 1);
  CHECK(replies[2].to == 2);
  CHECK(s.value("b") == "3");
  CHECK(s.ask(4, BarrierRequest{"b", 3}) == zero);
}

TEST_CASE("a cancelled barrier stays counted") {
  Store s;
  s.apply(1, BarrierRequest{"b", 2});
  CHECK(s.ask(1, CancelWaitRequest{}) == one);
  CHECK(s.ask(2, BarrierRequest{"b", 2}) == zero);
}

TEST_CASE("a last will is executed when its connection closes, unless it was cleared or the key exists") {
  Store s;
  CHECK(s.ask(1, LastWillRequest{"dead", "1"}) == zero);
  CHECK(s.ask(1, LastWillRequest{"dead", "one"}) == zero);  // it replaces the first one
  s.wait(2, {"dead"});
  const auto released = s.close(1);
  REQUIRE(released.size() == 1);
  CHECK(released[0].to == 2);
  CHECK(s.value("dead") == "one");

  s.ask(3, LastWillRequest{"dead", "three"});
  s.close(3);
  CHECK(s.value("dead") == "one");

  s.ask(4, LastWillRequest{"left", ""});
  CHECK(s.ask(4, ClearLastWillRequest{}) == zero);
  s.close(4);
  CHECK(s.ask(9, CheckRequest{Views{"left"}}) == one);
  CHECK(s.has_no_clients());
}

TEST_CASE("a last will ends another connection's wait for its value") {
  Store s;
  s.apply(1, WaitGetRequest{"dead"});
  s.ask(2, LastWillRequest{"dead", "2"});
  const auto released = s.close(2);
  REQUIRE(released.size() == 1);
  CHECK(released[0].bytes == zero + vec("2"));
}

TEST_CASE("the state machine refuses sessions and a second VALIDATE") {
  Store s;
  CHECK_THROWS_AS(s.apply(1, SessionRequest{"x"}), Error);
  CHECK_THROWS_AS(s.apply(1, ValidateRequest{}), Error);
}
