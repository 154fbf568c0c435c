#include "rendezvous/store/protocol.h"

#include "common/bytes.h"
#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/support/hex.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using ddprun::testing::from_hex;

namespace {

// Returns every kind of request, with fields that differ, encoded.
std::vector<std::string> one_of_each() {
  static const std::string_view keys[] = {"a", "", "bcd"};
  static const KeyValueView pairs[] = {{"k", "v"}, {"", "x"}, {"key", ""}};
  return {encode(SetRequest{"key", "value"}),
          encode(CompareSetRequest{"key", "", "desired"}),
          encode(GetRequest{"key"}),
          encode(AddRequest{"key", -7}),
          encode(CheckRequest{keys}),
          encode(WaitRequest{keys}),
          encode(NumKeysRequest{}),
          encode(DeleteKeyRequest{"key"}),
          encode(AppendRequest{"key", std::string_view("\0x", 2)}),
          encode(MultiGetRequest{keys}),
          encode(MultiSetRequest{pairs}),
          encode(CancelWaitRequest{}),
          encode(PingRequest{0xdeadbeef}),
          encode(QueuePushRequest{"queue", "item"}),
          encode(QueuePopRequest{"queue"}),
          encode(QueueLengthRequest{"queue"}),
          encode(ListKeysRequest{}),
          encode(BarrierRequest{"key", 1 << 20}),
          encode(SessionRequest{"frame"}),
          encode(LastWillRequest{"key", "value"}),
          encode(ClearLastWillRequest{}),
          encode(WaitGetRequest{"key"}),
          encode(ConfirmRequest{-3}),
          encode(WaitMultiGetRequest{keys})};
}

RequestParser validated() {
  return RequestParser(RequestParser::Handshake::done);
}

std::string protocol_error(RequestParser parser, const std::string& bytes) {
  try {
    parser.feed(bytes);
    while (parser.next()) {
    }
  } catch (const Error& e) {
    CHECK(e.code() == Errc::protocol);
    return e.what();
  }
  return "accepted";
}

std::string with_length(Op op, std::uint64_t length) {
  std::string bytes(1, static_cast<char>(op));
  put_le(bytes, length);
  return bytes;
}

}  // namespace

TEST_CASE("every request survives encoding and parsing, however its bytes are split") {
  const auto all = one_of_each();
  std::string stream;
  for (const auto& bytes : all) stream += bytes;
  for (std::size_t step = 1; step <= stream.size(); ++step) {
    auto parser = validated();
    std::vector<std::string> seen;
    for (std::size_t at = 0; at < stream.size(); at += step) {
      const std::string piece =
          stream.substr(at, step);  // destroyed when next() has returned null: views must not dangle
      parser.feed(piece);
      while (const auto* request = parser.next()) seen.push_back(encode(*request));
    }
    CHECK(seen == all);
    CHECK(parser.pending_bytes() == 0);
  }
}

TEST_CASE("requests buffered by retain() are all returned later") {
  auto parser = validated();
  std::string expected;
  {
    std::string stream;
    for (const auto& bytes : one_of_each()) stream += bytes;
    expected = stream;
    parser.feed(stream);
    const auto* first = parser.next();
    REQUIRE(first);
    CHECK(stream.starts_with(encode(*first)));
    parser.retain();
  }
  std::string seen = one_of_each()[0];
  CHECK(parser.pending_bytes() > 0);
  while (const auto* request = parser.next()) seen += encode(*request);
  CHECK(seen == expected);
}

TEST_CASE("a connection has to begin with VALIDATE, which is allowed once") {
  const auto hello = from_hex("00 CE F7 85 3C");
  for (std::size_t at = 0; at <= hello.size(); ++at) {
    RequestParser parser;
    const auto first = hello.substr(0, at), second = hello.substr(at) + "\x07";
    parser.feed(first);
    CHECK(parser.next() == nullptr);
    CHECK(parser.validated() == (at == hello.size()));
    parser.feed(second);
    const auto* request = parser.next();
    REQUIRE(request);
    CHECK(std::holds_alternative<NumKeysRequest>(*request));
  }
  CHECK_THAT(protocol_error(RequestParser(), "GET / HTTP/1.1\r\n"), Catch::Contains("the first byte is 71"));
  CHECK_THAT(protocol_error(RequestParser(), from_hex("00 CE F7 85 3D")), Catch::Contains("0x3d85f7ce"));
  CHECK_THAT(protocol_error(RequestParser(), from_hex("07")), Catch::Contains("not VALIDATE"));
  CHECK_THAT(protocol_error(RequestParser(), hello + hello), Catch::Contains("unknown opcode 0"));
}

TEST_CASE("unknown opcodes are refused by number") {
  for (const int op : {0, 19, 0x7f, 0x86, 0x90, 0xff})
    CHECK(protocol_error(validated(), std::string(1, static_cast<char>(op))) == fmt::format("unknown opcode {}", op));
}

TEST_CASE("limits are inclusive, and a request beyond them is refused before its bytes have arrived") {
  const std::string key(max_key_bytes, 'k'), value(max_value_bytes, 'v');
  CHECK(protocol_error(validated(), encode(SetRequest{key, value})) == "accepted");
  CHECK(protocol_error(validated(), with_length(Op::get, max_key_bytes + 1)) ==
        "GET with a key of 8193 bytes (at most 8192)");
  CHECK_THAT(protocol_error(validated(), with_length(Op::get, UINT64_MAX)), Catch::Contains("a key of 1844674"));
  CHECK_THAT(protocol_error(validated(), encode(GetRequest{key}) + with_length(Op::session, max_value_bytes + 1)),
             Catch::Contains("a value of 8388609 bytes"));
  CHECK(protocol_error(validated(), with_length(Op::wait, max_keys)) == "accepted");
  for (const auto op : {Op::check, Op::wait, Op::multi_get, Op::multi_set})
    CHECK_THAT(protocol_error(validated(), with_length(op, max_keys + 1)), Catch::Contains("with 131073 keys"));
}

TEST_CASE("one request in all is limited too") {
  const std::string value(max_value_bytes, 'v');
  std::vector<KeyValueView> pairs(7, KeyValueView{"k", value});
  CHECK(protocol_error(validated(), encode(MultiSetRequest{pairs})) == "accepted");
  pairs.push_back({"k", value});
  CHECK(protocol_error(validated(), encode(MultiSetRequest{pairs})) == "MULTI_SET of more than 67108864 bytes in all");
}

TEST_CASE("a large request in small pieces is parsed once") {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < max_keys; ++i) names.push_back(std::to_string(i));
  std::vector<KeyValueView> pairs;
  for (const auto& name : names) pairs.push_back({name, name});
  const auto bytes = encode(MultiSetRequest{pairs});
  auto parser = validated();
  const Request* request = nullptr;
  // 3 MB arrive in pieces of 7 bytes: a parser that restarts with each piece would not finish.
  for (std::size_t at = 0; at < bytes.size(); at += 7) {
    parser.feed(std::string_view(bytes).substr(at, 7));
    request = parser.next();
    CHECK_FALSE((request && at + 7 < bytes.size()));
  }
  REQUIRE(request);
  const auto& parsed = std::get<MultiSetRequest>(*request).pairs;
  REQUIRE(parsed.size() == max_keys);
  CHECK(parsed[max_keys - 1].value == names.back());
}

TEST_CASE("session frames are parsed however the stream is split") {
  std::string stream;
  for (const auto* frame : {"one", "", "three"}) put_vec(stream, frame);
  for (std::size_t step = 1; step <= stream.size(); ++step) {
    FrameParser parser;
    std::vector<std::string> frames;
    for (std::size_t at = 0; at < stream.size(); at += step) {
      parser.feed(stream.substr(at, step));
      while (auto frame = parser.next()) frames.push_back(*frame);
    }
    CHECK(frames == std::vector<std::string>{"one", "", "three"});
  }
  FrameParser parser;
  std::string too_long;
  put_le<std::uint64_t>(too_long, max_value_bytes + 1);
  parser.feed(too_long);
  CHECK_THROWS_AS(parser.next(), Error);
}
