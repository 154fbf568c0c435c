#include "rendezvous/store/store_state.h"

#include <array>
#include <charconv>

#include "common/bytes.h"
#include "common/error.h"
#include "common/printable.h"

namespace ddprun::rendezvous {
namespace {

constexpr std::uint8_t all_present = 0;
constexpr std::uint8_t not_all_present = 1;
constexpr std::uint8_t stop_waiting_reply = 0;
constexpr std::uint8_t wait_cancelled_reply = 1;
constexpr std::uint8_t values_too_long_reply = 2;
constexpr std::uint8_t done = 0;

void reply_u8(std::vector<Reply>& replies, ConnectionId to, std::uint8_t value) {
  put_u8(replies.emplace_back(Reply{to, {}}).bytes, value);
}
void reply_i64(std::vector<Reply>& replies, ConnectionId to, std::int64_t value) {
  put_i64(replies.emplace_back(Reply{to, {}}).bytes, value);
}
void reply_vec(std::vector<Reply>& replies, ConnectionId to, std::string_view value) {
  auto& bytes = replies.emplace_back(Reply{to, {}}).bytes;
  bytes.reserve(sizeof(std::uint64_t) + value.size());
  put_vec(bytes, value);
}

void require_reply_fits(std::size_t bytes, const char* what) {
  if (bytes > max_reply_bytes)
    throw make_error(Errc::protocol, "{} whose reply has {} bytes (at most {})", what, bytes, max_reply_bytes);
}

bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

}  // namespace

std::int64_t parse_counter(std::string_view text, std::string_view key) {
  auto digits = text;
  while (!digits.empty() && is_blank(digits.front())) digits.remove_prefix(1);
  if (digits.size() > 1 && digits[0] == '+' && digits[1] != '-') digits.remove_prefix(1);
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (status != std::errc{})
    throw make_error(Errc::protocol, "the value of key '{}' is not a decimal number of 64 bits: '{}'", printable(key),
                     printable(text.substr(0, 32)));
  return value;
}

std::int64_t counter_sum(std::string_view text, std::int64_t delta, std::string_view key) {
  const auto before = parse_counter(text, key);
  std::int64_t after = 0;
  if (__builtin_add_overflow(before, delta, &after))
    throw make_error(Errc::protocol, "adding {} to key '{}' at {} exceeds 64 bits", delta, printable(key), before);
  return after;
}

void StoreState::apply(ConnectionId from, const Request& request, std::vector<Reply>& replies) {
  std::visit([&](const auto& r) { on(from, r, replies); }, request);
}

void StoreState::close(ConnectionId id, std::vector<Reply>& replies) {
  stop_waiting(id);
  const auto client = clients_.find(id);
  if (client == clients_.end()) return;
  const auto last_will = std::move(client->second.last_will);
  clients_.erase(client);
  if (!last_will || values_.contains(last_will->first)) return;
  store(last_will->first, last_will->second);
  wake_all(last_will->first, replies);
}

bool StoreState::is_waiting(ConnectionId id) const {
  const auto client = clients_.find(id);
  return client != clients_.end() && client->second.wait.has_value();
}

void StoreState::erase_if(const std::function<bool(std::string_view)>& predicate) {
  const auto matches = [&](const auto& entry) { return predicate(entry.first); };
  std::erase_if(values_, matches);
  std::erase_if(queues_, matches);
}

std::optional<std::string> StoreState::find(std::string_view key) const {
  const auto value = values_.find(key);
  return value == values_.end() ? std::nullopt : std::optional(value->second);
}

// Values

void StoreState::on(ConnectionId, const SetRequest& r, Replies& replies) {
  store(r.key, r.value);
  wake_all(r.key, replies);
}

// Like PyTorch's server: a missing key with a non-empty expectation is answered with that expectation.
void StoreState::on(ConnectionId from, const CompareSetRequest& r, Replies& replies) {
  const auto current = values_.find(r.key);
  const bool missing = current == values_.end();
  if (missing ? r.expected.empty() : current->second == r.expected) {
    store(r.key, r.desired);
    reply_vec(replies, from, r.desired);
    wake_all(r.key, replies);
  } else {
    reply_vec(replies, from, missing ? r.expected : std::string_view(current->second));
  }
}

void StoreState::on(ConnectionId from, const GetRequest& r, Replies& replies) {
  reply_vec(replies, from, value_of(r.key));
}

void StoreState::on(ConnectionId from, const AddRequest& r, Replies& replies) {
  reply_i64(replies, from, increment(r.key, r.delta));
  wake_all(r.key, replies);
}

void StoreState::on(ConnectionId, const AppendRequest& r, Replies& replies) {
  const auto before = value_of(r.key).size();
  if (before + r.suffix.size() > max_value_bytes)
    throw make_error(Errc::protocol, "APPEND makes key '{}' longer than {} bytes", printable(r.key), max_value_bytes);
  if (const auto value = values_.find(r.key); value != values_.end())
    value->second.append(r.suffix);
  else
    store(r.key, r.suffix);
  wake_all(r.key, replies);
}

void StoreState::on(ConnectionId from, const MultiGetRequest& r, Replies& replies) {
  std::size_t total = 0;
  for (const auto key : r.keys) total += sizeof(std::uint64_t) + value_of(key).size();
  require_reply_fits(total, "MULTI_GET");
  if (r.keys.empty()) return;
  auto& bytes = replies.emplace_back(Reply{from, {}}).bytes;
  bytes.reserve(total);
  for (const auto key : r.keys) put_vec(bytes, value_of(key));
}

void StoreState::on(ConnectionId, const MultiSetRequest& r, Replies& replies) {
  for (const auto& [key, value] : r.pairs) {
    store(key, value);
    wake_all(key, replies);
  }
}

void StoreState::on(ConnectionId from, const DeleteKeyRequest& r, Replies& replies) {
  const auto value = values_.find(r.key);
  const bool found = value != values_.end();
  if (found) values_.erase(value);
  reply_i64(replies, from, found ? 1 : 0);
}

// Queries

void StoreState::on(ConnectionId from, const CheckRequest& r, Replies& replies) {
  const bool probe = r.keys.size() == 1 && (r.keys[0] == probe_key || (ending_ && r.keys[0] == ending_key));
  bool all = true;
  for (const auto key : r.keys) all = all && present(key);
  reply_u8(replies, from, probe || all ? all_present : not_all_present);
}

void StoreState::on(ConnectionId from, const NumKeysRequest&, Replies& replies) {
  reply_i64(replies, from, static_cast<std::int64_t>(values_.size()));
}

void StoreState::on(ConnectionId from, const ListKeysRequest&, Replies& replies) {
  std::size_t total = sizeof(std::int64_t);
  for (const auto& [key, value] : values_) total += sizeof(std::uint64_t) + key.size();
  require_reply_fits(total, "LIST_KEYS");
  auto& bytes = replies.emplace_back(Reply{from, {}}).bytes;
  bytes.reserve(total);
  put_i64(bytes, static_cast<std::int64_t>(values_.size()));
  for (const auto& [key, value] : values_) put_vec(bytes, key);
}

void StoreState::on(ConnectionId from, const PingRequest& r, Replies& replies) {
  put_le(replies.emplace_back(Reply{from, {}}).bytes, r.nonce);
}

// Waiting

void StoreState::on(ConnectionId from, const WaitRequest& r, Replies& replies) {
  require_not_waiting(from);
  for (const auto key : r.keys)
    if (!present(key)) wait_for(from, key);
  if (!is_waiting(from)) reply_u8(replies, from, stop_waiting_reply);
}

void StoreState::on(ConnectionId from, const WaitGetRequest& r, Replies& replies) {
  wait_for_values(from, std::array{r.key}, replies);
}

void StoreState::on(ConnectionId from, const WaitMultiGetRequest& r, Replies& replies) {
  wait_for_values(from, r.keys, replies);
}

// A queue's item is no value.
template <class Keys>
void StoreState::wait_for_values(ConnectionId id, const Keys& keys, Replies& replies) {
  require_not_waiting(id);
  for (const auto key : keys)
    if (!values_.contains(key)) wait_for(id, key);
  if (is_waiting(id)) {
    clients_.at(id).wait->wanted.assign(keys.begin(), keys.end());
  } else {
    put_values(replies.emplace_back(Reply{id, {}}).bytes, keys);
  }
}

template <class Keys>
void StoreState::put_values(std::string& out, const Keys& keys) const {
  std::size_t total = 1;
  for (const auto& key : keys) total += sizeof(std::uint64_t) + value_of(key).size();
  if (total > max_reply_bytes) return put_u8(out, values_too_long_reply);
  out.reserve(total);
  put_u8(out, stop_waiting_reply);
  for (const auto& key : keys) put_vec(out, value_of(key));
}

void StoreState::on(ConnectionId from, const CancelWaitRequest&, Replies& replies) {
  stop_waiting(from);
  reply_u8(replies, from, wait_cancelled_reply);
}

void StoreState::on(ConnectionId from, const BarrierRequest& r, Replies& replies) {
  require_not_waiting(from);
  if (increment(r.key, 1) < r.world_size) return wait_for(from, r.key);
  reply_u8(replies, from, stop_waiting_reply);
  wake_all(r.key, replies);
}

// Queues

void StoreState::on(ConnectionId, const QueuePushRequest& r, Replies& replies) {
  auto queue = queues_.find(r.queue);
  if (queue == queues_.end()) queue = queues_.emplace(std::string(r.queue), std::deque<std::string>{}).first;
  queue->second.emplace_back(r.item);
  wake_one(r.queue, replies);
}

void StoreState::on(ConnectionId from, const QueuePopRequest& r, Replies& replies) {
  const auto queue = queues_.find(r.queue);
  if (queue == queues_.end()) return reply_i64(replies, from, 0);
  reply_i64(replies, from, static_cast<std::int64_t>(queue->second.size()));
  put_vec(replies.back().bytes, queue->second.front());
  queue->second.pop_front();
  if (queue->second.empty()) queues_.erase(queue);
}

void StoreState::on(ConnectionId from, const QueueLengthRequest& r, Replies& replies) {
  const auto queue = queues_.find(r.queue);
  reply_i64(replies, from, queue == queues_.end() ? 0 : static_cast<std::int64_t>(queue->second.size()));
}

// Last wills

void StoreState::on(ConnectionId from, const LastWillRequest& r, Replies& replies) {
  clients_[from].last_will.emplace(r.key, r.value);
  reply_u8(replies, from, done);
}

void StoreState::on(ConnectionId from, const ClearLastWillRequest&, Replies& replies) {
  if (const auto client = clients_.find(from); client != clients_.end()) client->second.last_will.reset();
  erase_if_idle(from);
  reply_u8(replies, from, done);
}

// The server handles these itself and never passes them on.

void StoreState::on(ConnectionId, const ValidateRequest&, Replies&) {
  throw make_error(Errc::protocol, "a second VALIDATE");
}

void StoreState::on(ConnectionId, const SessionRequest&, Replies&) {
  throw make_error(Errc::protocol, "SESSION, but this server has no sessions");
}

void StoreState::on(ConnectionId, const ConfirmRequest&, Replies&) {
  throw Error(Errc::protocol, "CONFIRM, but this server asks no questions about sockets");
}

// Helpers

bool StoreState::present(std::string_view key) const {
  return values_.contains(key) || queues_.contains(key);
}

std::string_view StoreState::value_of(std::string_view key) const {
  const auto value = values_.find(key);
  return value == values_.end() ? std::string_view{} : value->second;
}

void StoreState::store(std::string_view key, std::string_view value) {
  if (const auto place = values_.find(key); place != values_.end())
    place->second.assign(value);
  else
    values_.emplace(std::string(key), std::string(value));
}

std::int64_t StoreState::increment(std::string_view key, std::int64_t delta) {
  const auto value = values_.find(key);
  const auto sum = counter_sum(value == values_.end() ? "0" : std::string_view(value->second), delta, key);
  store(key, std::to_string(sum));
  return sum;
}

void StoreState::require_not_waiting(ConnectionId id) const {
  if (is_waiting(id)) throw make_error(Errc::protocol, "a second wait while one is pending");
}

void StoreState::wait_for(ConnectionId id, std::string_view key) {
  auto& wait = clients_[id].wait;
  if (!wait) wait.emplace();
  auto waiters = waiters_.find(key);
  if (waiters == waiters_.end()) waiters = waiters_.emplace(std::string(key), Waiters{}).first;
  waiters->second.emplace(next_ticket_, id);
  wait->registrations.emplace_back(key, next_ticket_++);
  ++wait->missing;
}

void StoreState::wake_all(std::string_view key, Replies& replies) {
  if (waiters_.empty()) return;
  const auto entry = waiters_.find(key);
  if (entry == waiters_.end()) return;
  const auto waiters = std::move(entry->second);
  waiters_.erase(entry);
  for (const auto& [ticket, id] : waiters) satisfy(id, replies);
}

// A queue's item ends one wait, the oldest that needs nothing else; not one that wants values.
void StoreState::wake_one(std::string_view queue, Replies& replies) {
  const auto entry = waiters_.find(queue);
  if (entry == waiters_.end()) return;
  auto& waiters = entry->second;
  for (auto waiter = waiters.begin(); waiter != waiters.end();) {
    const auto id = waiter->second;
    if (!clients_.at(id).wait->wanted.empty()) {
      ++waiter;
      continue;
    }
    waiter = waiters.erase(waiter);
    if (satisfy(id, replies)) break;
  }
  if (waiters.empty()) waiters_.erase(entry);
}

bool StoreState::satisfy(ConnectionId id, Replies& replies) {
  auto& wait = clients_.at(id).wait;
  if (--wait->missing > 0) return false;
  put_values(replies.emplace_back(Reply{id, {}}).bytes, wait->wanted);
  wait.reset();
  erase_if_idle(id);
  return true;
}

void StoreState::stop_waiting(ConnectionId id) {
  if (!is_waiting(id)) return;
  auto& wait = clients_.at(id).wait;
  for (const auto& [key, ticket] : wait->registrations) {
    const auto waiters = waiters_.find(key);
    if (waiters == waiters_.end()) continue;
    waiters->second.erase(ticket);
    if (waiters->second.empty()) waiters_.erase(waiters);
  }
  wait.reset();
  erase_if_idle(id);
}

void StoreState::erase_if_idle(ConnectionId id) {
  const auto client = clients_.find(id);
  if (client != clients_.end() && !client->second.wait && !client->second.last_will) clients_.erase(client);
}

}  // namespace ddprun::rendezvous
