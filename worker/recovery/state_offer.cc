#include "worker/recovery/state_offer.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/deadline.h"
#include "common/error.h"
#include "common/log.h"

namespace ddprun {
namespace {

// The longest that the store may take to answer, and a node to ask.
Deadline answer_deadline() {
  constexpr std::chrono::seconds bound{10};
  return Deadline::in(bound);
}

std::string prefix_of(const RecoveryKeys& keys, std::uint64_t joined_in) {
  return fmt::format("{}state/{}/", keys.groups(), joined_in);
}

// Returns who gets the state; none when stop is requested, or nobody has asked for it in time.
std::optional<std::vector<std::string>> await_request(Store& store, const std::string& key,
                                                      const std::stop_token& stop) {
  constexpr std::chrono::milliseconds interval{20};
  for (const auto deadline = answer_deadline(); !stop.stop_requested() && !deadline.expired();) {
    try {
      store.wait({key}, Deadline::in(interval));
      return parse_member_list(store.get(key, answer_deadline()));
    } catch (const Error& error) {
      if (error.code() != Errc::timeout) throw;
    }
  }
  return std::nullopt;
}

}  // namespace

StateOffer::StateOffer(PlanWatch::Connect connect, Form form, const RecoveryKeys& keys, std::uint64_t joined_in)
    : connect_(std::move(connect)),
      form_(std::move(form)),
      keys_(keys),
      joined_in_(joined_in),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

std::unique_ptr<ProcessGroup> StateOffer::take() {
  const std::lock_guard lock(mutex_);
  return std::move(formed_);
}

void StateOffer::run(const std::stop_token& stop) try {
  const auto store = connect_(Deadline::never(), stop);
  store->set(keys_.state_offer(joined_in_), "1", answer_deadline());
  const auto request = keys_.state_request(joined_in_);
  store->wait({request}, Deadline::never());
  const auto receivers = parse_member_list(store->get(request, answer_deadline()));
  auto group = form_(prefix_of(keys_, joined_in_), 0, static_cast<int>(receivers.size()) + 1, stop);
  const std::lock_guard lock(mutex_);
  formed_ = std::move(group);
} catch (const Error& error) {
  if (!stop.stop_requested()) log::debug("the state of the training is not sent ahead: {}", error.what());
}

std::unique_ptr<ProcessGroup> accept_offer(Store& store, const StateOffer::Form& form, const RecoveryKeys& keys,
                                           std::uint64_t joined_in, const std::vector<std::string>& node,
                                           const std::string& self, const std::stop_token& stop) try {
  if (!store.check({keys.state_offer(joined_in)}, answer_deadline())) return nullptr;
  const auto request = keys.state_request(joined_in);
  if (self == node.front()) store.compare_set(request, "", member_list(node), answer_deadline());
  const auto receivers = await_request(store, request, stop);
  if (!receivers) return nullptr;
  const auto own = std::ranges::find(*receivers, self);
  if (own == receivers->end()) return nullptr;
  return form(prefix_of(keys, joined_in), static_cast<int>(own - receivers->begin()) + 1,
              static_cast<int>(receivers->size()) + 1, stop);
} catch (const Error& error) {
  log::debug("the state of the training does not come ahead: {}", error.what());
  return nullptr;
}

}  // namespace ddprun
