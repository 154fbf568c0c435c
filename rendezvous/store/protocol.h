#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

// The store's wire protocol (PROTOCOL.md): requests as values, to bytes and back. No I/O, no state but that of a
// parser.
namespace ddprun::rendezvous {

inline constexpr std::uint32_t validate_magic = 0x3C85F7CE;
inline constexpr std::size_t max_key_bytes = 8 << 10;
inline constexpr std::size_t max_value_bytes = 8 << 20;
inline constexpr std::size_t max_keys = 131072;                // in CHECK, WAIT, MULTI_GET, MULTI_SET
inline constexpr std::size_t max_request_bytes = 64 << 20;     // ours: one request in all
inline constexpr std::size_t max_reply_bytes = 256 << 20;      // ours: one reply in all
inline constexpr std::string_view probe_key = "ddprun/1";      // CHECK of it alone: 0 from our server, 1 from PyTorch's
inline constexpr std::string_view join_counter_key = "init/";  // PyTorch's, the one key without a leading slash

enum class Op : std::uint8_t {
  validate = 0,
  set = 1,
  compare_set = 2,
  get = 3,
  add = 4,
  check = 5,
  wait = 6,
  num_keys = 7,
  delete_key = 8,
  append = 9,
  multi_get = 10,
  multi_set = 11,
  cancel_wait = 12,
  ping = 13,
  queue_push = 14,
  queue_pop = 15,
  queue_length = 16,
  list_keys = 17,
  barrier = 18,
  session = 0x80,
  will = 0x81,
  clear_will = 0x82,
  wait_get = 0x83,
};

// "SET"; "opcode 200" for one that is not in the table.
std::string op_name(std::uint8_t op);

// One struct an opcode. Views belong to whoever made the request: a parser's are valid until it is called again.
struct KeyValueView {
  std::string_view key;
  std::string_view value;
};
struct ValidateRequest {};
struct SetRequest {
  std::string_view key, value;
};
struct CompareSetRequest {
  std::string_view key, expected, desired;
};
struct GetRequest {
  std::string_view key;
};
struct AddRequest {
  std::string_view key;
  std::int64_t delta = 0;
};
struct CheckRequest {
  std::span<const std::string_view> keys;
};
struct WaitRequest {
  std::span<const std::string_view> keys;
};
struct NumKeysRequest {};
struct DeleteKeyRequest {
  std::string_view key;
};
struct AppendRequest {
  std::string_view key, suffix;
};
struct MultiGetRequest {
  std::span<const std::string_view> keys;
};
struct MultiSetRequest {
  std::span<const KeyValueView> pairs;
};
struct CancelWaitRequest {};
struct PingRequest {
  std::uint32_t nonce = 0;
};
struct QueuePushRequest {
  std::string_view queue, item;
};
struct QueuePopRequest {
  std::string_view queue;
};
struct QueueLengthRequest {
  std::string_view queue;
};
struct ListKeysRequest {};
struct BarrierRequest {
  std::string_view key;
  std::int64_t world_size = 0;
};
struct SessionRequest {
  std::string_view frame;
};
struct WillRequest {
  std::string_view key, value;
};
struct ClearWillRequest {};
struct WaitGetRequest {
  std::string_view key;
};

using Request =
    std::variant<ValidateRequest, SetRequest, CompareSetRequest, GetRequest, AddRequest, CheckRequest, WaitRequest,
                 NumKeysRequest, DeleteKeyRequest, AppendRequest, MultiGetRequest, MultiSetRequest, CancelWaitRequest,
                 PingRequest, QueuePushRequest, QueuePopRequest, QueueLengthRequest, ListKeysRequest, BarrierRequest,
                 SessionRequest, WillRequest, ClearWillRequest, WaitGetRequest>;

// Appends the request as it goes over the wire. Limits are the caller's business.
void encode(const Request& request, std::string& out);
std::string encode(const Request& request);

// Parts of replies, appended.
void put_u8(std::string& out, std::uint8_t value);
void put_i64(std::string& out, std::int64_t value);
void put_vec(std::string& out, std::string_view bytes);

// Requests out of a stream of bytes that arrives in any cuts. Linear in the bytes fed, whatever the cuts; keeps a copy
// only of a request that is cut off at the end of what was fed.
//
//   parser.feed(bytes);
//   while (const Request* request = parser.next()) apply(*request);
//
// next() throws Errc::protocol with the reason as soon as the bytes cannot become a request within the limits; the
// stream is then useless. Not thread-safe.
class RequestParser {
 public:
  // A server's connection has to begin with VALIDATE, which is consumed silently and is an unknown opcode after that.
  enum class Handshake { expected, done };
  explicit RequestParser(Handshake handshake = Handshake::expected) : validated_(handshake == Handshake::done) {}

  // REQUIRES: next() returned null, or retain() was called, since the last feed. bytes must stay as they are until
  // then.
  void feed(std::string_view bytes);
  // The next whole request, or null when there is none. It and its views are valid until the next call of any function.
  const Request* next();
  // Copies what has not been consumed, so that the bytes fed may go although next() was not called to the end.
  void retain();

  bool validated() const { return validated_; }
  // Bytes kept: of a request whose rest has not come, or of whole ones after retain().
  std::size_t pending_bytes() const { return pending_.size() - start_; }

 private:
  struct Piece {
    std::size_t offset, size;  // in the request
  };

  std::string_view input() const;
  void consume(std::size_t bytes);
  bool parse_handshake();
  bool parse_request();
  bool parse_field(char kind);
  bool parse_string(const char* what, std::size_t limit);
  bool parse_list(bool with_values);
  void build_request();

  bool validated_;
  std::string_view fed_;  // what the caller's bytes still hold, while nothing is pending
  std::string pending_;   // own copy, the current request at start_
  std::size_t start_ = 0;
  // Progress in the current request: everything before parsed_ has been read and is not looked at again.
  std::size_t parsed_ = 0;
  std::size_t field_ = 0;
  std::optional<std::uint64_t> items_left_;  // of the list being read
  std::int64_t number_ = 0;
  std::vector<Piece> pieces_;
  // Of the last whole request.
  std::size_t finished_ = 0;
  std::vector<std::string_view> strings_;
  std::vector<KeyValueView> pairs_;
  Request request_;
};

// The frames (vec) that a server sends over a session, on the client's side.
class FrameParser {
 public:
  void feed(std::string_view bytes) { buffer_.append(bytes); }
  // Throws Errc::protocol for a frame longer than max_value_bytes.
  std::optional<std::string> next();

 private:
  std::string buffer_;
  std::size_t start_ = 0;
};

}  // namespace ddprun::rendezvous
