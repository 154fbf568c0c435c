// A million messages, a part of them broken, against the bare store.
#include "tests/support/store_junk.h"

#include <map>

#include "ddprun/common/error.h"
#include "ddprun/rendezvous/store/protocol.h"
#include "ddprun/rendezvous/store/store_state.h"
#include "tests/support/allocated_bytes.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using ddprun::testing::allocated_bytes;
using ddprun::testing::StoreJunk;

namespace {

constexpr ConnectionId cleaner = 0;

// A store whose connections talk junk: what it refuses ends the connection, and a new one takes its place.
struct JunkedStore {
  explicit JunkedStore(std::uint32_t seed) : junk(seed) {}

  void run(int messages) {
    for (int i = 0; i < messages; ++i) {
      const ConnectionId id = 1 + junk.below(20);
      const auto bytes = junk.message();
      try {
        // In two pieces: a cut anywhere.
        const auto cut = junk.below(static_cast<std::uint32_t>(bytes.size()) + 1);
        feed(id, bytes.substr(0, cut));
        feed(id, bytes.substr(cut));
        if (junk.one_in(200)) close(id);
      } catch (const Error& e) {
        if (e.code() != Errc::protocol) throw;
        close(id);
        ++refused;
      }
    }
  }

  void feed(ConnectionId id, const std::string& bytes) {
    auto& parser = parsers.try_emplace(id, RequestParser::Handshake::done).first->second;
    parser.feed(bytes);
    while (const auto* request = parser.next()) {
      state.apply(id, *request, replies);
      answered += replies.size();
      replies.clear();
    }
  }
  void close(ConnectionId id) {
    parsers.erase(id);
    state.close(id, replies);
    replies.clear();
  }
  std::string ask(const Request& request) {
    replies.clear();
    state.apply(cleaner, request, replies);
    return replies.empty() ? "" : replies[0].bytes;
  }

  // Ends all connections and takes everything out again, through the protocol; the names are known: broken ones were
  // stored too.
  void empty() {
    for (ConnectionId id = 1; id <= 20; ++id) close(id);
    const auto keys = ask(ListKeysRequest{});
    for (std::size_t at = 8; at < keys.size();) {
      const auto size = get_le<std::uint64_t>(keys, at);
      ask(DeleteKeyRequest{std::string_view(keys).substr(at + 8, size)});
      at += 8 + size;
    }
  }

  StoreJunk junk;
  StoreState state;
  std::map<ConnectionId, RequestParser> parsers;
  std::vector<Reply> replies;
  std::size_t refused = 0;
  std::size_t answered = 0;
};

}  // namespace

TEST_CASE("a million messages, sound and broken, leave the state machine as it was") {
  constexpr std::uint32_t seed = 20240607;
  constexpr int messages = 1'000'000;
  INFO("seed " << seed);
  const auto before = allocated_bytes();
  std::size_t half_way = 0;
  {
    JunkedStore store(seed);
    store.run(messages / 2);
    half_way = allocated_bytes();
    store.run(messages / 2);
    CHECK(allocated_bytes() < half_way + (2 << 20));  // no growth
    CHECK(store.refused > messages / 100);
    CHECK(store.answered > messages / 10);
    store.empty();
    CHECK(store.state.registrations() == 0);
    CHECK(store.state.client_count() == 0);
    CHECK(store.state.num_keys() == 0);
  }
  CHECK(allocated_bytes() < before + (512 << 10));  // no leak, but for what the allocator keeps for itself
}
