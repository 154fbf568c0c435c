#include "worker/recovery/state_offer.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

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

std::string prefix_of(const RecoveryKeys& keys, std::uint64_t generation, std::size_t number) {
  return fmt::format("{}state/{}/{}/", keys.groups(), generation, number);
}

// Returns the generation whose rank 0 offers the state; none if nobody does, or the members have changed since.
std::optional<std::uint64_t> offering_generation(Store& store, const RecoveryKeys& keys, std::uint64_t joined_in) {
  const auto offer = keys.state_offer(joined_in);
  if (!store.check({offer}, answer_deadline())) return std::nullopt;
  const auto generation = parse_generation(store.get(offer, answer_deadline()));
  const bool is_over = store.check({keys.newest()}, answer_deadline()) &&
                       parse_generation(store.get(keys.newest(), answer_deadline())) > generation;
  return is_over ? std::nullopt : std::optional(generation);
}

// Returns the processes of a request; none when stop is requested, or nobody has made it in time.
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

StateOffer::StateOffer(PlanWatch::Connect connect, Form form, const RecoveryKeys& keys, std::uint64_t generation)
    : connect_(std::move(connect)),
      form_(std::move(form)),
      keys_(keys),
      generation_(generation),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

std::unique_ptr<ProcessGroup> StateOffer::take() {
  const std::lock_guard lock(mutex_);
  if (formed_.empty()) return nullptr;
  auto group = std::move(formed_.front());
  formed_.pop_front();
  return group;
}

void StateOffer::run(const std::stop_token& stop) try {
  constexpr std::uint64_t most_changes = 16;  // that nodes ask for before the members change
  const auto store = connect_(Deadline::never(), stop);
  for (std::uint64_t ahead = 1; ahead <= most_changes; ++ahead)
    store->set(keys_.state_offer(generation_ + ahead), std::to_string(generation_), answer_deadline());
  for (std::size_t number = 0; !stop.stop_requested(); ++number) form(*store, number, stop);
} catch (const Error& error) {
  if (!stop.stop_requested()) log::debug("the state of the training is not sent ahead: {}", error.what());
}

// Forms the group with a node that asks for the state. One that is lost meanwhile keeps no other from it.
void StateOffer::form(Store& store, std::size_t number, const std::stop_token& stop) {
  const auto request = keys_.state_request(generation_, number);
  store.wait({request}, Deadline::never());
  const auto receivers = parse_member_list(store.get(request, answer_deadline()));
  try {
    auto group = form_(prefix_of(keys_, generation_, number), 0, static_cast<int>(receivers.size()) + 1, stop);
    const std::lock_guard lock(mutex_);
    formed_.push_back(std::move(group));
  } catch (const Error& error) {
    log::debug("the state of the training is not sent to {}: {}", fmt::join(receivers, ", "), error.what());
  }
}

std::unique_ptr<ProcessGroup> accept_offer(Store& store, const StateOffer::Form& form, const RecoveryKeys& keys,
                                           std::uint64_t joined_in, const std::vector<std::string>& node,
                                           const std::string& self, const std::stop_token& stop) try {
  const auto generation = offering_generation(store, keys, joined_in);
  if (!generation) return nullptr;
  for (std::size_t number = 0;; ++number) {
    const auto request = keys.state_request(*generation, number);
    if (self == node.front()) store.compare_set(request, "", member_list(node), answer_deadline());
    const auto receivers = await_request(store, request, stop);
    if (!receivers) return nullptr;
    const auto own = std::ranges::find(*receivers, self);
    if (own == receivers->end()) continue;
    return form(prefix_of(keys, *generation, number), static_cast<int>(own - receivers->begin()) + 1,
                static_cast<int>(receivers->size()) + 1, stop);
  }
} catch (const Error& error) {
  log::debug("the state of the training does not come ahead: {}", error.what());
  return nullptr;
}

}  // namespace ddprun
