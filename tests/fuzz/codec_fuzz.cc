// The parser with arbitrary bytes: the result must not depend on how they are split, and must equal its own
// encoding.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "rendezvous/store/protocol.h"

using namespace ddprun::rendezvous;

namespace {

struct Outcome {
  std::vector<std::string> requests;
  std::string error;
  bool operator==(const Outcome&) const = default;
};

Outcome parse(std::string_view bytes, std::size_t step, RequestParser::Handshake handshake) {
  Outcome outcome;
  RequestParser parser(handshake);
  try {
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      const std::string piece(bytes.substr(at, step));
      parser.feed(piece);
      while (const auto* request = parser.next()) outcome.requests.push_back(encode(*request));
    }
  } catch (const ddprun::Error& e) {
    outcome.error = e.what();
  }
  return outcome;
}

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t step = 1 + data[0] % 16;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto whole = parse(bytes, bytes.size(), RequestParser::Handshake::done);
  require(whole == parse(bytes, step, RequestParser::Handshake::done));
  std::string again;
  for (const auto& request : whole.requests) again += request;
  require(bytes.substr(0, again.size()) == again);
  require(parse(again, again.size() + 1, RequestParser::Handshake::done).requests == whole.requests);
  parse(bytes, step, RequestParser::Handshake::expected);
  FrameParser frames;
  try {
    frames.feed(bytes);
    while (frames.next()) {
    }
  } catch (const ddprun::Error&) {
  }
  return 0;
}
