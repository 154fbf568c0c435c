#include "rendezvous/store/protocol.h"

#include <algorithm>
#include <array>

#include "common/bytes.h"
#include "common/error.h"

namespace ddprun::rendezvous {
namespace {

// The fields after an opcode, one letter each: k is a key, v a value, i signed 64 bits, u unsigned 32 bits, K a counted
// list of keys, P a counted list of (key, value).
struct OpLayout {
  Op op;
  const char* name;
  const char* fields;
};
constexpr std::array layouts = {OpLayout{Op::validate, "VALIDATE", "u"},
                                OpLayout{Op::set, "SET", "kv"},
                                OpLayout{Op::compare_set, "COMPARE_SET", "kvv"},
                                OpLayout{Op::get, "GET", "k"},
                                OpLayout{Op::add, "ADD", "ki"},
                                OpLayout{Op::check, "CHECK", "K"},
                                OpLayout{Op::wait, "WAIT", "K"},
                                OpLayout{Op::num_keys, "GETNUMKEYS", ""},
                                OpLayout{Op::delete_key, "DELETE_KEY", "k"},
                                OpLayout{Op::append, "APPEND", "kv"},
                                OpLayout{Op::multi_get, "MULTI_GET", "K"},
                                OpLayout{Op::multi_set, "MULTI_SET", "P"},
                                OpLayout{Op::cancel_wait, "CANCEL_WAIT", ""},
                                OpLayout{Op::ping, "PING", "u"},
                                OpLayout{Op::queue_push, "QUEUE_PUSH", "kv"},
                                OpLayout{Op::queue_pop, "QUEUE_POP", "k"},
                                OpLayout{Op::queue_length, "QUEUE_LEN", "k"},
                                OpLayout{Op::list_keys, "LIST_KEYS", ""},
                                OpLayout{Op::barrier, "BARRIER", "ki"},
                                OpLayout{Op::session, "SESSION", "v"},
                                OpLayout{Op::last_will, "LAST_WILL", "kv"},
                                OpLayout{Op::clear_last_will, "CLEAR_LAST_WILL", ""},
                                OpLayout{Op::wait_get, "WAIT_GET", "k"},
                                OpLayout{Op::confirm, "CONFIRM", "i"},
                                OpLayout{Op::wait_multi_get, "WAIT_MULTI_GET", "K"}};

constexpr auto make_index() {
  std::array<const OpLayout*, 256> index{};
  for (const auto& layout : layouts) index[static_cast<std::uint8_t>(layout.op)] = &layout;
  return index;
}
constexpr std::array<const OpLayout*, 256> layout_of = make_index();

constexpr std::size_t length_bytes = 8;
constexpr std::size_t validate_bytes = 5;

void put_op(std::string& out, Op op) {
  out.push_back(static_cast<char>(op));
}

void put_keys(std::string& out, Op op, std::span<const std::string_view> keys) {
  put_op(out, op);
  put_le<std::uint64_t>(out, keys.size());
  for (const auto key : keys) put_vec(out, key);
}

void put_strings(std::string& out, Op op, std::initializer_list<std::string_view> strings) {
  put_op(out, op);
  for (const auto string : strings) put_vec(out, string);
}

struct Encoder {
  std::string& out;

  void operator()(const ValidateRequest&) const {
    put_op(out, Op::validate);
    put_le(out, validate_magic);
  }
  void operator()(const SetRequest& r) const { put_strings(out, Op::set, {r.key, r.value}); }
  void operator()(const CompareSetRequest& r) const {
    put_strings(out, Op::compare_set, {r.key, r.expected, r.desired});
  }
  void operator()(const GetRequest& r) const { put_strings(out, Op::get, {r.key}); }
  void operator()(const AddRequest& r) const {
    put_strings(out, Op::add, {r.key});
    put_le(out, r.delta);
  }
  void operator()(const CheckRequest& r) const { put_keys(out, Op::check, r.keys); }
  void operator()(const WaitRequest& r) const { put_keys(out, Op::wait, r.keys); }
  void operator()(const NumKeysRequest&) const { put_op(out, Op::num_keys); }
  void operator()(const DeleteKeyRequest& r) const { put_strings(out, Op::delete_key, {r.key}); }
  void operator()(const AppendRequest& r) const { put_strings(out, Op::append, {r.key, r.suffix}); }
  void operator()(const MultiGetRequest& r) const { put_keys(out, Op::multi_get, r.keys); }
  void operator()(const MultiSetRequest& r) const {
    put_op(out, Op::multi_set);
    put_le<std::uint64_t>(out, r.pairs.size());
    for (const auto& [key, value] : r.pairs) {
      put_vec(out, key);
      put_vec(out, value);
    }
  }
  void operator()(const CancelWaitRequest&) const { put_op(out, Op::cancel_wait); }
  void operator()(const PingRequest& r) const {
    put_op(out, Op::ping);
    put_le(out, r.nonce);
  }
  void operator()(const QueuePushRequest& r) const { put_strings(out, Op::queue_push, {r.queue, r.item}); }
  void operator()(const QueuePopRequest& r) const { put_strings(out, Op::queue_pop, {r.queue}); }
  void operator()(const QueueLengthRequest& r) const { put_strings(out, Op::queue_length, {r.queue}); }
  void operator()(const ListKeysRequest&) const { put_op(out, Op::list_keys); }
  void operator()(const BarrierRequest& r) const {
    put_strings(out, Op::barrier, {r.key});
    put_le(out, r.world_size);
  }
  void operator()(const SessionRequest& r) const { put_strings(out, Op::session, {r.frame}); }
  void operator()(const LastWillRequest& r) const { put_strings(out, Op::last_will, {r.key, r.value}); }
  void operator()(const ClearLastWillRequest&) const { put_op(out, Op::clear_last_will); }
  void operator()(const WaitGetRequest& r) const { put_strings(out, Op::wait_get, {r.key}); }
  void operator()(const ConfirmRequest& r) const {
    put_op(out, Op::confirm);
    put_le(out, r.answer);
  }
  void operator()(const WaitMultiGetRequest& r) const { put_keys(out, Op::wait_multi_get, r.keys); }
};

}  // namespace

std::string op_name(std::uint8_t op) {
  const OpLayout* layout = layout_of[op];
  return layout ? layout->name : fmt::format("opcode {}", op);
}

void encode(const Request& request, std::string& out) {
  std::visit(Encoder{out}, request);
}

std::string encode(const Request& request) {
  std::string out;
  encode(request, out);
  return out;
}

void put_u8(std::string& out, std::uint8_t value) {
  out.push_back(static_cast<char>(value));
}
void put_i64(std::string& out, std::int64_t value) {
  put_le(out, value);
}
void put_vec(std::string& out, std::string_view bytes) {
  put_le<std::uint64_t>(out, bytes.size());
  out.append(bytes);
}

void RequestParser::feed(std::string_view bytes) {
  if (pending_.empty())
    fed_ = bytes;
  else
    pending_.append(bytes);
}

void RequestParser::retain() {
  if (!fed_.empty()) {
    pending_.assign(fed_);
    fed_ = {};
  } else if (start_ == pending_.size()) {
    pending_ = std::string();  // frees the memory: most connections are idle most of the time
  } else {
    pending_.erase(0, start_);
  }
  start_ = 0;
}

std::string_view RequestParser::input() const {
  return pending_.empty() ? fed_ : std::string_view(pending_).substr(start_);
}

void RequestParser::consume(std::size_t bytes) {
  if (pending_.empty())
    fed_.remove_prefix(bytes);
  else
    start_ += bytes;
}

const Request* RequestParser::next() {
  consume(std::exchange(finished_, 0));
  if ((!validated_ && !parse_handshake()) || !parse_request()) {
    retain();
    return nullptr;
  }
  build_request();
  finished_ = std::exchange(parsed_, 0);
  field_ = 0;
  return &request_;
}

bool RequestParser::parse_handshake() {
  const auto bytes = input();
  if (bytes.empty()) return false;
  if (bytes[0] != static_cast<char>(Op::validate))
    throw make_error(Errc::protocol,
                     "the first byte is {}, not VALIDATE (not a store client, or PyTorch before 2.2, "
                     "which needs ddprun's --no_agent_store)",
                     static_cast<std::uint8_t>(bytes[0]));
  if (bytes.size() < validate_bytes) return false;
  const auto magic = get_le<std::uint32_t>(bytes, 1);
  if (magic != validate_magic)
    throw make_error(Errc::protocol, "VALIDATE with {:#010x} instead of {:#010x}", magic, validate_magic);
  validated_ = true;
  consume(validate_bytes);
  return true;
}

bool RequestParser::parse_request() {
  const auto bytes = input();
  if (bytes.empty()) return false;
  const auto op = static_cast<std::uint8_t>(bytes[0]);
  const OpLayout* layout = layout_of[op];
  if (!layout || layout->op == Op::validate) throw make_error(Errc::protocol, "unknown opcode {}", op);
  if (parsed_ == 0) {
    parsed_ = 1;
    pieces_.clear();
  }
  for (; layout->fields[field_] != 0; ++field_)
    if (!parse_field(layout->fields[field_])) return false;
  return true;
}

// Parses one field at parsed_. Changes nothing if its bytes are incomplete.
bool RequestParser::parse_field(char kind) {
  const auto rest = input().size() - parsed_;
  switch (kind) {
    case 'k':
      return parse_string("key", max_key_bytes);
    case 'v':
      return parse_string("value", max_value_bytes);
    case 'K':
      return parse_list(false);
    case 'P':
      return parse_list(true);
    case 'i':
      if (rest < sizeof(std::int64_t)) return false;
      number_ = get_le<std::int64_t>(input(), parsed_);
      parsed_ += sizeof(std::int64_t);
      return true;
    default:  // 'u'
      if (rest < sizeof(std::uint32_t)) return false;
      number_ = get_le<std::uint32_t>(input(), parsed_);
      parsed_ += sizeof(std::uint32_t);
      return true;
  }
}

bool RequestParser::parse_string(const char* what, std::size_t limit) {
  const auto bytes = input();
  if (bytes.size() - parsed_ < length_bytes) return false;
  const auto size = get_le<std::uint64_t>(bytes, parsed_);
  const auto name = [&] { return op_name(static_cast<std::uint8_t>(bytes[0])); };
  if (size > limit)
    throw make_error(Errc::protocol, "{} with a {} of {} bytes (at most {})", name(), what, size, limit);
  const auto begin = parsed_ + length_bytes;
  if (begin + size > max_request_bytes)
    throw make_error(Errc::protocol, "{} of more than {} bytes in all", name(), max_request_bytes);
  if (bytes.size() - begin < size) return false;
  pieces_.push_back({begin, size});
  parsed_ = begin + size;
  return true;
}

bool RequestParser::parse_list(bool with_values) {
  if (!items_left_) {
    const auto bytes = input();
    if (bytes.size() - parsed_ < length_bytes) return false;
    const auto count = get_le<std::uint64_t>(bytes, parsed_);
    if (count > max_keys)
      throw make_error(Errc::protocol, "{} with {} keys (at most {})", op_name(static_cast<std::uint8_t>(bytes[0])),
                       count, max_keys);
    items_left_ = with_values ? 2 * count : count;
    parsed_ += length_bytes;
  }
  for (; *items_left_ > 0; --*items_left_) {
    const bool is_value = with_values && *items_left_ % 2 == 1;
    if (!parse_string(is_value ? "value" : "key", is_value ? max_value_bytes : max_key_bytes)) return false;
  }
  items_left_.reset();
  return true;
}

void RequestParser::build_request() {
  const auto bytes = input();
  strings_.clear();
  for (const auto& piece : pieces_) strings_.push_back(bytes.substr(piece.offset, piece.size));
  const auto& s = strings_;
  switch (static_cast<Op>(bytes[0])) {
    case Op::validate:
      request_ = ValidateRequest{};
      break;
    case Op::set:
      request_ = SetRequest{s[0], s[1]};
      break;
    case Op::compare_set:
      request_ = CompareSetRequest{s[0], s[1], s[2]};
      break;
    case Op::get:
      request_ = GetRequest{s[0]};
      break;
    case Op::add:
      request_ = AddRequest{s[0], number_};
      break;
    case Op::check:
      request_ = CheckRequest{s};
      break;
    case Op::wait:
      request_ = WaitRequest{s};
      break;
    case Op::num_keys:
      request_ = NumKeysRequest{};
      break;
    case Op::delete_key:
      request_ = DeleteKeyRequest{s[0]};
      break;
    case Op::append:
      request_ = AppendRequest{s[0], s[1]};
      break;
    case Op::multi_get:
      request_ = MultiGetRequest{s};
      break;
    case Op::multi_set:
      pairs_.clear();
      for (std::size_t i = 0; i < s.size(); i += 2) pairs_.push_back({s[i], s[i + 1]});
      request_ = MultiSetRequest{pairs_};
      break;
    case Op::cancel_wait:
      request_ = CancelWaitRequest{};
      break;
    case Op::ping:
      request_ = PingRequest{static_cast<std::uint32_t>(number_)};
      break;
    case Op::queue_push:
      request_ = QueuePushRequest{s[0], s[1]};
      break;
    case Op::queue_pop:
      request_ = QueuePopRequest{s[0]};
      break;
    case Op::queue_length:
      request_ = QueueLengthRequest{s[0]};
      break;
    case Op::list_keys:
      request_ = ListKeysRequest{};
      break;
    case Op::barrier:
      request_ = BarrierRequest{s[0], number_};
      break;
    case Op::session:
      request_ = SessionRequest{s[0]};
      break;
    case Op::last_will:
      request_ = LastWillRequest{s[0], s[1]};
      break;
    case Op::clear_last_will:
      request_ = ClearLastWillRequest{};
      break;
    case Op::wait_get:
      request_ = WaitGetRequest{s[0]};
      break;
    case Op::confirm:
      request_ = ConfirmRequest{number_};
      break;
    case Op::wait_multi_get:
      request_ = WaitMultiGetRequest{s};
      break;
  }
}

std::optional<std::string> FrameParser::next() {
  const auto bytes = std::string_view(buffer_).substr(start_);
  const auto size = bytes.size() < length_bytes ? 0 : get_le<std::uint64_t>(bytes);
  if (size > max_value_bytes)
    throw make_error(Errc::protocol, "a session frame of {} bytes (at most {})", size, max_value_bytes);
  if (bytes.size() < length_bytes || bytes.size() - length_bytes < size) {
    buffer_.erase(0, std::exchange(start_, 0));
    return std::nullopt;
  }
  start_ += length_bytes + size;
  return std::string(bytes.substr(length_bytes, size));
}

}  // namespace ddprun::rendezvous
