#include "rendezvous/etcd/etcd_json.h"

#include <array>
#include <charconv>

#include "common/error.h"

namespace ddprun {
namespace {

namespace json = boost::json;

constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int digit_of(char c) {
  const auto at = alphabet.find(c);
  return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

const json::value* field_of(const json::value& object, std::string_view field) {
  const auto* members = object.if_object();
  return members ? members->if_contains(field) : nullptr;
}

[[noreturn]] void unexpected(std::string_view field) {
  throw make_error(Errc::protocol, "etcd's answer is not as expected: '{}'", field);
}

std::string bytes_at(const json::value& object, std::string_view field) {
  const auto* text = field_of(object, field);
  if (!text) return {};
  const auto* string = text->if_string();
  auto bytes = string ? base64_decode(*string) : std::nullopt;
  if (!bytes) unexpected(field);
  return std::move(*bytes);
}

const json::array& array_at(const json::value& object, std::string_view field) {
  static const json::array none;
  const auto* value = field_of(object, field);
  if (!value) return none;
  const auto* array = value->if_array();
  if (!array) unexpected(field);
  return *array;
}

bool true_at(const json::value& object, std::string_view field) {
  const auto* value = field_of(object, field);
  return value && value->is_bool() && value->get_bool();
}

std::int64_t revision_of(const json::value& answer) {
  const auto* header = field_of(answer, "header");
  if (!header) unexpected("header");
  return integer_at(*header, "revision");
}

EtcdKeyValue read_entry(const json::value& entry) {
  return {.key = bytes_at(entry, "key"),
          .value = bytes_at(entry, "value"),
          .create_revision = integer_at(entry, "create_revision"),
          .mod_revision = integer_at(entry, "mod_revision")};
}

json::object compare_json(const EtcdCompare& compare) {
  const bool create = compare.target == EtcdCompare::Target::create;
  return {{"result", "EQUAL"},
          {"target", create ? "CREATE" : "MOD"},
          {"key", base64_encode(compare.key)},
          {create ? "create_revision" : "mod_revision", std::to_string(compare.revision)}};
}

json::object operation_json(const EtcdOperation& operation, const EtcdLeases& leases) {
  using Kind = EtcdOperation::Kind;
  using Lease = EtcdOperation::Lease;
  json::object body{{"key", base64_encode(operation.key)}};
  if (operation.kind == Kind::read) return {{"request_range", std::move(body)}};
  if (operation.kind == Kind::erase) return {{"request_delete_range", std::move(body)}};
  body["value"] = base64_encode(operation.value);
  if (operation.lease != Lease::none)
    body["lease"] = std::to_string(operation.lease == Lease::node ? leases.node : leases.job);
  return {{"request_put", std::move(body)}};
}

json::array operations_json(const std::vector<EtcdOperation>& operations, const EtcdLeases& leases) {
  json::array array;
  for (const auto& operation : operations) array.push_back(operation_json(operation, leases));
  return array;
}

}  // namespace

std::string base64_encode(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k) text += k <= count ? alphabet[group >> (18 - 6 * k) & 63U] : '=';
  }
  return text;
}

std::optional<std::string> base64_decode(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::size_t padding = 0;
  while (padding < 2 && text.ends_with('=')) text.remove_suffix(1), ++padding;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 3);
  std::uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    const int digit = digit_of(c);
    if (digit < 0) return std::nullopt;
    group = group << 6 | static_cast<std::uint32_t>(digit);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>(group >> bits & 0xffU);
  }
  return bytes;
}

std::string end_of_prefix(std::string prefix) {
  prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
  return prefix;
}

json::object txn_request(const EtcdTxn& txn, const EtcdLeases& leases) {
  json::array compare;
  for (const auto& one : txn.compare) compare.push_back(compare_json(one));
  return {{"compare", std::move(compare)},
          {"success", operations_json(txn.success, leases)},
          {"failure", operations_json(txn.failure, leases)}};
}

json::object range_request(const std::string& prefix) {
  return {{"key", base64_encode(prefix)}, {"range_end", base64_encode(end_of_prefix(prefix))}};
}

json::object watch_request(const std::string& prefix, std::int64_t from_revision) {
  json::object create = range_request(prefix);
  create["start_revision"] = std::to_string(from_revision);
  return {{"create_request", std::move(create)}};
}

EtcdTxnResult read_txn_answer(const json::value& answer) {
  EtcdTxnResult result{.succeeded = true_at(answer, "succeeded"), .revision = revision_of(answer)};
  for (const auto& response : array_at(answer, "responses"))
    if (const auto* range = field_of(response, "response_range"))
      for (const auto& entry : array_at(*range, "kvs")) result.read.push_back(read_entry(entry));
  return result;
}

EtcdRange read_range_answer(const json::value& answer) {
  EtcdRange range{.revision = revision_of(answer)};
  for (const auto& entry : array_at(answer, "kvs")) range.entries.push_back(read_entry(entry));
  return range;
}

EtcdWatchAnswer read_watch_answer(const json::value& line) {
  EtcdWatchAnswer answer;
  const auto* result = field_of(line, "result");
  if (!result) {
    answer.canceled = field_of(line, "error") != nullptr;
    if (!answer.canceled) unexpected("result");
    return answer;
  }
  answer.canceled = true_at(*result, "canceled");
  for (const auto& event : array_at(*result, "events")) {
    const auto* entry = field_of(event, "kv");
    const auto* type = field_of(event, "type");
    if (!entry) unexpected("kv");
    answer.changes.push_back(
        {.entry = read_entry(*entry), .erased = type && type->is_string() && type->get_string() == "DELETE"});
  }
  return answer;
}

std::int64_t integer_at(const json::value& object, std::string_view field) {
  const auto* value = field_of(object, field);
  if (!value) return 0;
  if (const auto* number = value->if_int64()) return *number;
  const auto* text = value->if_string();
  std::int64_t number = 0;
  if (!text) unexpected(field);
  const auto [end, status] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (status != std::errc{} || end != text->data() + text->size()) unexpected(field);
  return number;
}

}  // namespace ddprun
