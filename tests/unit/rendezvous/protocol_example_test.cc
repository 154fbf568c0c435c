// The worked examples of the c10d protocol, A to H, and that of PROTOCOL.md, run against the parser and the state
// machine.
#include <map>

#include "rendezvous/store/protocol.h"
#include "rendezvous/store/store_state.h"
#include "tests/support/catch.h"
#include "tests/support/hex.h"

using namespace ddprun::rendezvous;
using ddprun::testing::from_hex;

namespace {

constexpr ConnectionId self = 1, other = 2;

struct Step {
  ConnectionId from;
  const char* sent;
  const char* answered;  // bytes to `self`, in hex
};
using Example = std::vector<Step>;

// The server of the examples: a state machine, and a parser and the replies of each connection.
struct Server {
  StoreState state;
  std::map<ConnectionId, RequestParser> parsers;
  std::map<ConnectionId, std::string> answers;

  void feed(ConnectionId from, std::string_view bytes) {
    auto& parser = parsers[from];
    parser.feed(bytes);
    std::vector<Reply> replies;
    while (const auto* request = parser.next()) state.apply(from, *request, replies);
    for (auto& reply : replies) answers[reply.to] += reply.bytes;
  }
};

constexpr const char* hello = "00 CE F7 85 3C";
const Step other_connects{other, hello, ""};
constexpr const char* set_k = "01 0200000000000000 2F6B 0100000000000000 76";

const std::map<std::string, Example>& examples() {
  static const std::map<std::string, Example> all = {
      {"A: connect and join as second of two",
       {other_connects,
        {other, "04 0500000000000000 696E69742F 0100000000000000", ""},
        {self, hello, ""},
        {self, "0D 34 12 00 00", "34 12 00 00"},
        {self, "04 05 00 00 00 00 00 00 00 69 6E 69 74 2F 01 00 00 00 00 00 00 00", "02 00 00 00 00 00 00 00"}}},
      {"B: set and get",
       {{self, hello, ""},
        {self, "01 02 00 00 00 00 00 00 00 2F 6B 01 00 00 00 00 00 00 00 76", ""},
        {self, "06 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2F 6B", "00"},
        {self, "03 02 00 00 00 00 00 00 00 2F 6B", "01 00 00 00 00 00 00 00 76"}}},
      {"C: a counter at 5, minus 7, and its stored form",
       {{self, hello, ""},
        {self, "01 0200000000000000 2F6E 0100000000000000 35", ""},
        {self, "04 02 00 00 00 00 00 00 00 2F 6E F9 FF FF FF FF FF FF FF", "FE FF FF FF FF FF FF FF"},
        {self, "03 02 00 00 00 00 00 00 00 2F 6E", "02 00 00 00 00 00 00 00 2D 32"}}},
      {"D: compare_set creates, and fails on a missing key",
       {{self, hello, ""},
        {self, "02 03 00 00 00 00 00 00 00 2F 63 73 00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 41",
         "01 00 00 00 00 00 00 00 41"},
        {self, "02 07 00 00 00 00 00 00 00 2F 61 62 73 65 6E 74 01 00 00 00 00 00 00 00 58 01 00 00 00 00 00 00 00 59",
         "01 00 00 00 00 00 00 00 58"},
        {self, "05 0100000000000000 0700000000000000 2F616273656E74", "01"}}},
      {"E: a wait that is cancelled",
       {{self, hello, ""},
        {self, "06 01 00 00 00 00 00 00 00 05 00 00 00 00 00 00 00 2F 6E 6F 70 65", ""},
        {self, "0C", "01"}}},
      {"E: a wait that is answered while the cancelling is under way",
       {other_connects,
        {self, hello, ""},
        {self, "06 01 00 00 00 00 00 00 00 05 00 00 00 00 00 00 00 2F 6E 6F 70 65", ""},
        {other, "01 0500000000000000 2F6E6F7065 0000000000000000", "00"},
        {self, "0C", "01"}}},
      {"F: check and multi_get",
       {{self, hello, ""},
        {self,
         "0B 0200000000000000 0200000000000000 2F6E 0200000000000000 2D32 0300000000000000 2F6373 0100000000000000 41",
         ""},
        {self, "05 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2F 6E 02 00 00 00 00 00 00 00 2F 78", "01"},
        {self, "0A 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2F 6E 03 00 00 00 00 00 00 00 2F 63 73",
         "02 00 00 00 00 00 00 00 2D 32 01 00 00 00 00 00 00 00 41"}}},
      {"G: a queue, and a barrier of two",
       {other_connects,
        {self, hello, ""},
        {self, "0E 02 00 00 00 00 00 00 00 2F 71 02 00 00 00 00 00 00 00 68 69", ""},
        {self, "10 0200000000000000 2F71", "01 00 00 00 00 00 00 00"},
        {self, "0F 02 00 00 00 00 00 00 00 2F 71", "01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 68 69"},
        {self, "0F 02 00 00 00 00 00 00 00 2F 71", "00 00 00 00 00 00 00 00"},
        {self, set_k, ""},
        {self, "11", "01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2F 6B"},
        {self, "12 02 00 00 00 00 00 00 00 2F 62 02 00 00 00 00 00 00 00", ""},
        {other, "12 02 00 00 00 00 00 00 00 2F 62 02 00 00 00 00 00 00 00", "00"}}},
      {"H: delete and count",
       {{self, hello, ""},
        {self, set_k, ""},
        {self, "08 02 00 00 00 00 00 00 00 2F 6B", "01 00 00 00 00 00 00 00"},
        {self, "08 02 00 00 00 00 00 00 00 2F 6B", "00 00 00 00 00 00 00 00"},
        {self, "04 0500000000000000 696E69742F 0100000000000000", "01 00 00 00 00 00 00 00"},
        {self, "09 0200000000000000 2F61 0100000000000000 62", ""},
        {self, set_k, ""},
        {self, "07", "03 00 00 00 00 00 00 00"}}},
      {"PROTOCOL.md: probe, last will, wait_get",
       {other_connects,
        {self, hello, ""},
        {self, "0D 34 12 00 00", "34 12 00 00"},
        {self, "05 01 00 00 00 00 00 00 00  08 00 00 00 00 00 00 00  64 64 70 72 75 6E 2F 32", "00"},
        {self, "81 02 00 00 00 00 00 00 00  2F 64  01 00 00 00 00 00 00 00  33", "00"},
        {self, "83 02 00 00 00 00 00 00 00  2F 6B", ""},
        {other, set_k, "00 01 00 00 00 00 00 00 00 76"},
        {self, "0C", "01"},
        {self, "82", "00"}}},
  };
  return all;
}

// Returns all replies to `self`, when cut splits the bytes of each step into pieces.
template <class Cut>
std::string play(const Example& example, Cut cut) {
  Server server;
  for (const auto& step : example) {
    const auto bytes = from_hex(step.sent);
    cut(bytes, [&](std::string_view piece) { server.feed(step.from, std::string(piece)); });
  }
  return server.answers[self];
}

std::string expected_answers(const Example& example) {
  std::string all;
  for (const auto& step : example) all += from_hex(step.answered);
  return all;
}

}  // namespace

TEST_CASE("every worked example gets the replies as written, step by step") {
  for (const auto& [name, example] : examples()) {
    INFO(name);
    Server server;
    for (const auto& step : example) {
      INFO(step.sent);
      server.answers.clear();
      server.feed(step.from, from_hex(step.sent));
      CHECK(server.answers[self] == from_hex(step.answered));
    }
  }
}

TEST_CASE("the worked examples do not depend on how their bytes are split") {
  for (const auto& [name, example] : examples()) {
    INFO(name);
    const auto expected = expected_answers(example);
    const auto bytewise = [](std::string_view bytes, auto feed) {
      for (std::size_t i = 0; i < bytes.size(); ++i) feed(bytes.substr(i, 1));
    };
    CHECK(play(example, bytewise) == expected);
    for (std::size_t at = 0; at < 40; ++at) {
      INFO(at);
      const auto in_two = [at](std::string_view bytes, auto feed) {
        feed(bytes.substr(0, at));
        if (at < bytes.size()) feed(bytes.substr(at));
      };
      CHECK(play(example, in_two) == expected);
    }
  }
}

TEST_CASE("the client encodes the worked examples' requests to the same bytes") {
  const std::string_view k[] = {"/k"}, n_cs[] = {"/n", "/cs"};
  CHECK(encode(ValidateRequest{}) == from_hex(hello));
  CHECK(encode(PingRequest{0x1234}) == from_hex("0D 34 12 00 00"));
  CHECK(encode(AddRequest{"init/", 1}) == from_hex("04 0500000000000000 69 6E 69 74 2F 0100000000000000"));
  CHECK(encode(SetRequest{"/k", "v"}) == from_hex(set_k));
  CHECK(encode(WaitRequest{k}) == from_hex("06 0100000000000000 0200000000000000 2F 6B"));
  CHECK(encode(GetRequest{"/k"}) == from_hex("03 0200000000000000 2F 6B"));
  CHECK(encode(CompareSetRequest{"/cs", "", "A"}) ==
        from_hex("02 0300000000000000 2F 63 73 0000000000000000 0100000000000000 41"));
  CHECK(encode(MultiGetRequest{n_cs}) == from_hex("0A 0200000000000000 0200000000000000 2F6E 0300000000000000 2F6373"));
  CHECK(encode(BarrierRequest{"/b", 2}) == from_hex("12 0200000000000000 2F62 0200000000000000"));
}
