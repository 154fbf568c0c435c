// A million messages, some of them invalid, against the state machine.
#include "tests/support/store_junk.h"

#include <map>

#include "common/error.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/store/store_state.h"
#include "tests/support/allocated_bytes.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using ddprun::testing::allocated_bytes;
using ddprun::testing::StoreJunk;

namespace {

constexpr ConnectionId cleaner = 0;

// A store that gets invalid requests: a refused one closes its connection, and a new one replaces it.
struct JunkedStore {
  explicit JunkedStore(std::uint32_t seed) : junk(seed) {}

  void run(int messages) {
    for (int i = 0; i < messages; ++i) {
      const ConnectionId id = 1 + junk.below(20);
      const auto bytes = junk.message();
      try {
        // The bytes are sent in two pieces, split anywhere.
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

  // Closes all connections and erases all keys through the protocol; the names are known, since the keys of invalid
  // requests were recorded too.
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

TEST_CASE("a million valid and invalid messages leave no state behind") {
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
    for (ConnectionId id = 1; id <= 20; ++id) CHECK_FALSE(store.state.is_waiting(id));
    CHECK(store.state.num_keys() == 0);
  }
  CHECK(allocated_bytes() < before + (512 << 10));  // no leak, except what the allocator caches
}
