#include "rendezvous/trust/client_hello.h"

#include <cstring>
#include <optional>
#include <string>

#include "rendezvous/trust/key_derivation.h"

namespace ddprun {
namespace {

constexpr std::size_t record_head = 5, binder_bytes = 32;
constexpr unsigned client_hello = 1, pre_shared_key_extension = 41;

std::string_view view(const AuthenticationCode& code) {
  return {reinterpret_cast<const char*>(code.data()), code.size()};
}

// HKDF-Expand-Label (RFC 8446, 7.1), for 32 bytes.
Secret expand(const Secret& secret, std::string_view label, std::string_view context) {
  std::string info{'\0', static_cast<char>(binder_bytes)};
  info += static_cast<char>(6 + label.size());
  info += "tls13 ";
  info += label;
  info += static_cast<char>(context.size());
  info += context;
  info += '\x01';
  auto block = authentication_code(secret.bytes(), info);
  return Secret(block);
}

// Takes fields from the front of a message. Once one is missing, all further ones are.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  bool empty() const { return rest_.empty(); }
  std::size_t left() const { return rest_.size(); }
  unsigned number(std::size_t bytes) {
    unsigned value = 0;
    for (const char byte : take(bytes)) value = value << 8 | static_cast<unsigned char>(byte);
    return value;
  }
  std::string_view take(std::size_t bytes) {
    if (!ok_ || bytes > rest_.size()) {
      ok_ = false;
      rest_ = {};
      return {};
    }
    const auto taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  // A field that begins with its size.
  std::string_view sized(std::size_t size_bytes) {
    const auto size = number(size_bytes);
    return take(size);
  }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

// The codes of the extension for pre-shared keys, which is the last one.
std::optional<std::string_view> find_codes(std::string_view hello) {
  Fields fields(hello);
  fields.take(2 + 32);  // version, random
  fields.sized(1);      // session id
  fields.sized(2);      // cipher suites
  fields.sized(1);      // compression methods
  Fields extensions(fields.sized(2));
  if (!fields.ok() || !fields.empty()) return std::nullopt;
  while (extensions.ok() && !extensions.empty()) {
    const auto type = extensions.number(2);
    const auto body = extensions.sized(2);
    if (type != pre_shared_key_extension || !extensions.empty()) continue;
    Fields keys(body);
    keys.sized(2);  // identities
    const auto codes = keys.sized(2);
    return keys.ok() && keys.empty() ? std::optional(codes) : std::nullopt;
  }
  return std::nullopt;
}

Secret binder_key_of(const Secret& psk, const Sha256Algorithm& sha256) {
  constexpr AuthenticationCode no_salt{};
  const auto bytes = psk.bytes();
  auto early = authentication_code(no_salt, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const auto binder = expand(Secret(early), "ext binder", view(sha256({})));
  return expand(binder, "finished", {});
}

}  // namespace

HelloJudge::HelloJudge(const Secret& pre_shared_key) : binder_key_(binder_key_of(pre_shared_key, sha256_)) {}

std::string_view HelloJudge::right_code(std::string_view message) const {
  Fields head(message);
  if (head.number(1) != client_hello || head.number(3) != head.left() || !head.ok()) return {};
  const auto codes = find_codes(message.substr(4));
  if (!codes || codes->size() != 1 + binder_bytes || codes->front() != static_cast<char>(binder_bytes)) return {};
  const auto code = codes->substr(1);
  // The code is computed over everything before the list of codes, whose size takes two bytes.
  const auto text = message.substr(0, message.size() - codes->size() - 2);
  const auto expected = binder_key_.code_of(view(sha256_(text)));
  return equal_in_constant_time(code, view(expected)) ? code : std::string_view();
}

HelloVerdict HelloJudge::judge(std::string_view bytes, std::size_t max_bytes) const {
  using Kind = HelloVerdict::Kind;
  if (bytes.size() > 1 && bytes[1] != 3) return {Kind::wrong};  // the version of all records since SSL 3
  if (bytes.size() < record_head) return {Kind::incomplete};
  const auto size = record_head + Fields(bytes.substr(3)).number(2);
  if (size > max_bytes) return {Kind::wrong};
  if (bytes.size() > record_head && bytes[record_head] != static_cast<char>(client_hello)) return {Kind::wrong};
  if (bytes.size() < size) return {Kind::incomplete};
  const auto code = right_code(bytes.substr(record_head, size - record_head));
  return {code.empty() ? Kind::wrong : Kind::right, code};
}

bool SeenHellos::insert(std::string_view code) {
  std::uint64_t key = 0;
  std::memcpy(&key, code.data(), sizeof key);
  if (!known_.insert(key).second) return false;
  by_age_.push_back(key);
  if (by_age_.size() > limit) {
    known_.erase(by_age_.front());
    by_age_.pop_front();
  }
  return true;
}

}  // namespace ddprun
