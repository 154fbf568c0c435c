#include "worker/parallel/forms/data/order_broadcast.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/error.h"
#include "worker/comm/collectives.h"

namespace ddprun {
namespace {

constexpr std::int64_t end_of_pass = -1;

}  // namespace

void OrderBroadcast::begin_pass(bool has_samples) {
  std::vector<std::int64_t> have(static_cast<std::size_t>(group_.size()));
  have[static_cast<std::size_t>(group_.rank())] = has_samples ? 1 : 0;
  allreduce(group_, have);
  const auto first = std::ranges::find(have, 1);
  if (first == have.end())
    throw Error(Errc::usage, "sharded parameters: no rank has samples for the first pass, so none knows its order");
  source_.reset();
  if (std::ranges::count(have, 0) > 0) source_ = static_cast<int>(first - have.begin());
}

OrderBroadcast::Message OrderBroadcast::exchange(const Message& own) {
  std::vector<std::int64_t> numbers{end_of_pass, 0};
  if (own) numbers = {static_cast<std::int64_t>(own->kind), static_cast<std::int64_t>(own->index)};
  group_.broadcast(span_of(numbers), *source_, {.blocking = true});
  if (numbers[0] == end_of_pass) return std::nullopt;
  return CallOrder::Event{static_cast<CallOrder::Kind>(numbers[0]), static_cast<std::size_t>(numbers[1])};
}

void OrderBroadcast::send(CallOrder::Event event) {
  if (exchange(event) != event)
    throw make_error(Errc::mismatch,
                     "sharded parameters: rank {} calls the model's modules in another order than rank {}",
                     group_.rank(), *source_);
}

void OrderBroadcast::end_pass() {
  if (exchange(std::nullopt))
    throw make_error(Errc::mismatch, "sharded parameters: the pass of rank {} ends before that of rank {}",
                     group_.rank(), *source_);
}

std::optional<CallOrder::Event> OrderBroadcast::receive() {
  return exchange(std::nullopt);
}

}  // namespace ddprun
