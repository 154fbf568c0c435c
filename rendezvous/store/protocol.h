#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

// The store's wire protocol (PROTOCOL.md): encoding and parsing of requests. No I/O, no state except a parser's.
namespace ddprun::rendezvous {

inline constexpr std::uint32_t validate_magic = 0x3C85F7CE;
inline constexpr std::size_t max_key_bytes = 8 << 10;
inline constexpr std::size_t max_value_bytes = 8 << 20;
inline constexpr std::size_t max_keys = 131072;                  // in CHECK, WAIT, MULTI_GET, WAIT_MULTI_GET, MULTI_SET
inline constexpr std::size_t max_request_bytes = 64 << 20;       // ddprun's limit for a whole request
inline constexpr std::size_t max_reply_bytes = 256 << 20;        // ddprun's limit for a whole reply
inline constexpr std::string_view probe_key = "ddprun/2";        // CHECK of it only: 0 from ddprun's server, 1 from
                                                                 // PyTorch's
inline constexpr std::string_view ending_key = "ddprun/ending";  // CHECK of it only: 0 once the server has announced
                                                                 // its end
inline constexpr std::string_view join_counter_key = "init/";    // PyTorch's only key without a leading slash

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
  last_will = 0x81,
  clear_last_will = 0x82,
  wait_get = 0x83,
  confirm = 0x84,
  wait_multi_get = 0x85,
};

// "SET"; "opcode 200" if unknown.
std::string op_name(std::uint8_t op);

// One struct per opcode, with the fields of the reply (PROTOCOL.md). Views refer to the caller's bytes, or to the
// parser's until its next call.
struct KeyValueView {
  std::string_view key;
  std::string_view value;
};
// The first request of a connection. It has no reply.
struct ValidateRequest {};
// It has no reply.
struct SetRequest {
  std::string_view key, value;
};
// Stores desired if the value equals expected, or if key is missing and expected is empty. Reply: vec.
struct CompareSetRequest {
  std::string_view key, expected, desired;
};
// Reply: vec, empty for a missing key.
struct GetRequest {
  std::string_view key;
};
// The value is decimal text. Reply: i64 sum.
struct AddRequest {
  std::string_view key;
  std::int64_t delta = 0;
};
// Reply: u8, 0 if all keys exist, otherwise 1.
struct CheckRequest {
  std::span<const std::string_view> keys;
};
// Reply once all keys exist: u8 0.
struct WaitRequest {
  std::span<const std::string_view> keys;
};
// Reply: i64. Queues are not counted.
struct NumKeysRequest {};
// Reply: i64, 1, or 0 if key was missing.
struct DeleteKeyRequest {
  std::string_view key;
};
// It has no reply.
struct AppendRequest {
  std::string_view key, suffix;
};
// Reply: one vec per key.
struct MultiGetRequest {
  std::span<const std::string_view> keys;
};
// It has no reply.
struct MultiSetRequest {
  std::span<const KeyValueView> pairs;
};
// Cancels the pending wait. Reply: u8 1, also if there is none.
struct CancelWaitRequest {};
// Reply: u32 nonce.
struct PingRequest {
  std::uint32_t nonce = 0;
};
// It has no reply. Queues are separate from keys.
struct QueuePushRequest {
  std::string_view queue, item;
};
// Reply: i64 items before the pop, and if there was one, vec.
struct QueuePopRequest {
  std::string_view queue;
};
// Reply: i64.
struct QueueLengthRequest {
  std::string_view queue;
};
// Reply: i64 n, n str, in any order.
struct ListKeysRequest {};
// Adds 1 to the counter at key. Reply once it has reached world_size: u8 0.
struct BarrierRequest {
  std::string_view key;
  std::int64_t world_size = 0;
};
// Makes the connection a session. Replies: the server's frames, at any time.
struct SessionRequest {
  std::string_view frame;
};
// A last will as in MQTT. Reply: u8 0.
struct LastWillRequest {
  std::string_view key, value;
};
// Reply: u8 0.
struct ClearLastWillRequest {};
// Reply once key has a value: u8 0, vec.
struct WaitGetRequest {
  std::string_view key;
};
// Reply once all keys have values: u8 0, one vec per key; u8 2 if these would be too long for a reply.
struct WaitMultiGetRequest {
  std::span<const std::string_view> keys;
};
// With 0 this client offers to answer questions about sockets of its host, which come as vec at any time. n: yes to
// question n; -n: no. It has no reply.
struct ConfirmRequest {
  std::int64_t answer = 0;
};

using Request = std::variant<ValidateRequest, SetRequest, CompareSetRequest, GetRequest, AddRequest, CheckRequest,
                             WaitRequest, NumKeysRequest, DeleteKeyRequest, AppendRequest, MultiGetRequest,
                             MultiSetRequest, CancelWaitRequest, PingRequest, QueuePushRequest, QueuePopRequest,
                             QueueLengthRequest, ListKeysRequest, BarrierRequest, SessionRequest, LastWillRequest,
                             ClearLastWillRequest, WaitGetRequest, ConfirmRequest, WaitMultiGetRequest>;

// The names of the requests, in the order of the variant.
inline constexpr std::array<std::string_view, std::variant_size_v<Request>> request_names = {
    "validate",        "set",       "compare_set",  "get",           "add",       "check",       "wait",
    "num_keys",        "delete",    "append",       "multi_get",     "multi_set", "cancel_wait", "ping",
    "queue_push",      "queue_pop", "queue_length", "list_keys",     "barrier",   "session",     "last_will",
    "clear_last_will", "wait_get",  "confirm",      "wait_multi_get"};
static_assert(request_names.back() == "wait_multi_get");

// Appends the encoded request. The caller checks the limits.
void encode(const Request& request, std::string& out);
std::string encode(const Request& request);

// Each appends a field of a reply.
void put_u8(std::string& out, std::uint8_t value);
void put_i64(std::string& out, std::int64_t value);
void put_vec(std::string& out, std::string_view bytes);

// Parses requests from a byte stream that arrives in pieces of any size. Linear in the bytes; copies only a request
// that is incomplete at the end of a piece.
//
//   parser.feed(bytes);
//   while (const Request* request = parser.next()) apply(*request);
//
// Ownership: bytes fed stay the caller's, see feed(). Threads: not thread-safe.
// Errors: next() throws Errc::protocol with the reason as soon as the bytes cannot become a request within the limits;
//   the parser is unusable then.
class RequestParser {
 public:
  // expected: the stream begins with VALIDATE, which next() does not return; later VALIDATE is an unknown opcode.
  enum class Handshake { expected, done };
  explicit RequestParser(Handshake handshake = Handshake::expected) : validated_(handshake == Handshake::done) {}

  // bytes must stay valid until next() returns null or retain() is called. REQUIRES: one of them since the last feed.
  void feed(std::string_view bytes);
  // The next complete request, or null. It and its views are valid until the next call of any function.
  const Request* next();
  // Copies the bytes not consumed yet, so that the caller may reuse its buffer before next() has returned null.
  void retain();

  bool validated() const { return validated_; }
  // The number of bytes buffered: those of an incomplete request, and after retain() also of complete ones.
  std::size_t pending_bytes() const { return pending_.size() - start_; }

 private:
  struct Piece {
    std::size_t offset, size;  // the position in the request
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
  std::string_view fed_;  // the caller's bytes not consumed yet, while pending_ is empty
  std::string pending_;   // a copy, with the current request at start_
  std::size_t start_ = 0;
  // Progress in the current request: the bytes before parsed_ are parsed.
  std::size_t parsed_ = 0;
  std::size_t field_ = 0;
  std::optional<std::uint64_t> items_left_;  // items that remain in the list being read
  std::int64_t number_ = 0;
  std::vector<Piece> pieces_;
  // The last complete request: its size, what its views refer to, and itself.
  std::size_t finished_ = 0;
  std::vector<std::string_view> strings_;
  std::vector<KeyValueView> pairs_;
  Request request_;
};

// Parses the frames (vec) that a server sends over a session, from bytes in pieces of any size. Owns a copy of the
// bytes. Threads: not thread-safe. Errors: see next().
class FrameParser {
 public:
  void feed(std::string_view bytes) { buffer_.append(bytes); }
  // The next complete frame, or nullopt. Throws Errc::protocol for a frame longer than max_value_bytes.
  std::optional<std::string> next();

 private:
  std::string buffer_;
  std::size_t start_ = 0;
};

}  // namespace ddprun::rendezvous
