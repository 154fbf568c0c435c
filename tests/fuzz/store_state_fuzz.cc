// The state machine with arbitrary conversations of four connections. The input is a sequence of (sender, length,
// bytes); sender 4 closes a connection. No state may be left when all connections have closed, and only senders get
// replies.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/store/store_state.h"

using namespace ddprun::rendezvous;

namespace {

constexpr std::size_t connections = 4;

void require(bool condition) {
  if (!condition) std::abort();
}

class Conversation {
 public:
  void send(std::size_t sender, std::string_view bytes) {
    try {
      parsers_[sender].feed(bytes);
      while (const auto* request = parsers_[sender].next()) apply(sender, *request);
    } catch (const ddprun::Error& e) {
      require(e.code() == ddprun::Errc::protocol);
      end(sender);
    }
  }
  void end(std::size_t sender) {
    std::vector<Reply> replies;
    state_.close(sender, replies);
    for (const auto& reply : replies) require(reply.to != sender);
    parsers_[sender] = RequestParser(RequestParser::Handshake::done);
  }
  void finish() {
    for (std::size_t sender = 0; sender < connections; ++sender) end(sender);
    for (std::size_t sender = 0; sender < connections; ++sender) require(!state_.is_waiting(sender));
  }

 private:
  void apply(std::size_t sender, const Request& request) {
    std::array<bool, connections> waited{};
    for (std::size_t id = 0; id < connections; ++id) waited[id] = state_.is_waiting(id);
    std::vector<Reply> replies;
    state_.apply(sender, request, replies);
    for (const auto& reply : replies) {
      require(reply.to < connections && !reply.bytes.empty());
      require(reply.to == sender || (waited[reply.to] && !state_.is_waiting(reply.to) && reply.bytes[0] == 0));
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
    const std::size_t sender = static_cast<std::uint8_t>(rest[0]) % (connections + 1);
    const std::size_t length = static_cast<std::uint8_t>(rest[1]);
    if (sender == connections)
      conversation.end(length % connections);
    else
      conversation.send(sender, rest.substr(2, length));
    rest.remove_prefix(std::min(rest.size(), 2 + (sender == connections ? 0 : length)));
  }
  conversation.finish();
  return 0;
}
