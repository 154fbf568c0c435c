// The session codec with arbitrary bytes: what decodes is encoded to the same bytes. And the server side, hub and
// memberships, with arbitrary sequences of frames.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>

#include "common/error.h"
#include "rendezvous/membership/membership_hub.h"
#include "rendezvous/membership/session_protocol.h"

using namespace ddprun;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_codec(std::string_view bytes) {
  try {
    require(encode(decode_node_frame(bytes)) == bytes);
  } catch (const Error&) {
  }
  try {
    require(encode(decode_server_frame(bytes)) == bytes);
  } catch (const Error&) {
  }
}

// The hub has to send valid frames, whatever it receives.
class CheckedSender final : public SessionSender {
 public:
  void send(SessionId, std::string frame) override { decode_server_frame(frame); }
  void close(SessionId) override {}
};

// The input consists of "session, length, frame"; from 128 on the session is a connection without one, the frame a key.
void check_hub(std::string_view bytes) {
  boost::asio::io_context loop;
  CheckedSender sender;
  MembershipHub hub(loop, sender);
  constexpr SessionId sessions = 4;
  for (SessionId id = 0; id < sessions; ++id)
    hub.on_open(id, {.peer_address = "10.0.0.1", .local_address = "10.0.0.2"});
  while (bytes.size() > 2) {
    const auto first = static_cast<std::uint8_t>(bytes[0]);
    const bool is_key = first >= 128;
    const SessionId id = first % sessions + (is_key ? sessions : 0);
    const std::size_t size = static_cast<std::uint8_t>(bytes[1]);
    try {
      if (is_key)
        hub.on_key(id, "10.0.0.3", bytes.substr(2, size), first % 2 == 0 ? R"({"ddprun":1})" : "");
      else
        hub.on_frame(id, std::string(bytes.substr(2, size)));
    } catch (const Error&) {
      hub.on_close(id);
      if (!is_key) hub.on_open(id, {.peer_address = "127.0.0.1", .local_address = "127.0.0.1"});
    }
    bytes.remove_prefix(std::min(bytes.size(), 2 + size));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check_codec(bytes);
  check_hub(bytes);
  return 0;
}
