// The state machine against any conversation of four connections. The input is a row of (who, length, bytes); who 4
// ends a connection. Whatever was said, nothing may be left behind when all have gone, and nobody is answered who did
// not ask.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "ddprun/common/error.h"
#include "ddprun/rendezvous/store/protocol.h"
#include "ddprun/rendezvous/store/store_state.h"

using namespace ddprun::rendezvous;

namespace {

constexpr std::size_t connections = 4;

void require(bool condition) {
  if (!condition) std::abort();
}

class Conversation {
 public:
  void say(std::size_t who, std::string_view bytes) {
    try {
      parsers_[who].feed(bytes);
      while (const auto* request = parsers_[who].next()) apply(who, *request);
    } catch (const ddprun::Error& e) {
      require(e.code() == ddprun::Errc::protocol);
      end(who);
    }
  }
  void end(std::size_t who) {
    std::vector<Reply> replies;
    state_.close(who, replies);
    for (const auto& reply : replies) require(reply.to != who);
    parsers_[who] = RequestParser(RequestParser::Handshake::done);
  }
  void finish() {
    for (std::size_t who = 0; who < connections; ++who) end(who);
    require(state_.registrations() == 0 && state_.client_count() == 0);
  }

 private:
  void apply(std::size_t who, const Request& request) {
    std::array<bool, connections> waited{};
    for (std::size_t id = 0; id < connections; ++id) waited[id] = state_.is_waiting(id);
    std::vector<Reply> replies;
    state_.apply(who, request, replies);
    for (const auto& reply : replies) {
      require(reply.to < connections && !reply.bytes.empty());
      require(reply.to == who || (waited[reply.to] && !state_.is_waiting(reply.to) && reply.bytes[0] == 0));
    }
  }

  StoreState state_;
  std::array<RequestParser, connections> parsers_{
      RequestParser(RequestParser::Handshake::done), RequestParser(RequestParser::Handshake::done),
      RequestParser(RequestParser::Handshake::done), RequestParser(RequestParser::Handshake::done)};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Conversation conversation;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  while (rest.size() >= 2) {
    const std::size_t who = static_cast<std::uint8_t>(rest[0]) % (connections + 1);
    const std::size_t length = static_cast<std::uint8_t>(rest[1]);
    if (who == connections)
      conversation.end(length % connections);
    else
      conversation.say(who, rest.substr(2, length));
    rest.remove_prefix(std::min(rest.size(), 2 + (who == connections ? 0 : length)));
  }
  conversation.finish();
  return 0;
}
