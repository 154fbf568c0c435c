#include "rendezvous/membership/relay_table.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace ddprun {
namespace {

// The member that has the rank; null if none does. Members hold contiguous blocks of ranks in their order.
const RoundMember* member_of(const Round& round, int rank) {
  if (rank < 0 || rank >= round.world_size) return nullptr;
  const auto next = std::upper_bound(round.members.begin(), round.members.end(), rank,
                                     [](int value, const RoundMember& member) { return value < member.first_rank; });
  return &*std::prev(next);
}

std::string no_rank_text(int rank, const Round& round) {
  return fmt::format("the job has no rank {}: its ranks are 0 to {}", rank, round.world_size - 1);
}

}  // namespace

RelayTable::Deliveries RelayTable::received(const std::string& node, const RelayMessage& message, const Round* round) {
  std::visit([&](const auto& one) { on(node, one, round); }, message);
  return take_deliveries();
}

RelayTable::Deliveries RelayTable::round_started(const Round& round) {
  std::vector<std::uint64_t> followers;
  for (const auto& [number, request] : requests_)
    if (request.follows) followers.push_back(number);
  for (const auto number : followers) move(number, round);
  return take_deliveries();
}

RelayTable::Deliveries RelayTable::node_left(const std::string& node, const std::string& how) {
  for (auto each = requests_.begin(); each != requests_.end();) {
    Request& request = each->second;
    if (request.asker == node) {
      if (request.follows && !request.target.empty()) post(request.target, UnfollowRank{each->first});
      each = requests_.erase(each);
      continue;
    }
    if (request.target == node) {
      const auto text = fmt::format("host {}, which has rank {}, {}", request.host, request.rank, how);
      if (!request.follows) {
        each = refuse(each, text);
        continue;
      }
      notice(request, text);
      request.target.clear();
    }
    ++each;
  }
  return take_deliveries();
}

// ---- messages

// A node that asks again under a number that it uses has lost the answer to the first request.
void RelayTable::on(const std::string& node, const FollowRank& message, const Round* round) {
  on(node, UnfollowRank{message.number}, round);
  Request request{.asker = node, .number = message.number, .rank = message.rank};
  if (requests_.size() >= max_requests)
    return tell(request, RankOutput::Kind::refused,
                fmt::format("the agents of the job have {} such requests already", requests_.size()));
  if (message.again && !round) {
    requests_.emplace(next_number_++, std::move(request));
    return;
  }
  if (const auto why = refusal(message.rank, round); !why.empty()) return tell(request, RankOutput::Kind::refused, why);
  send_to_target(std::move(request), *member_of(*round, message.rank), message.again);
}

void RelayTable::on(const std::string& node, const UnfollowRank& message, const Round*) {
  const auto found = asked_by(node, message.number, true);
  if (found == requests_.end()) return;
  if (!found->second.target.empty()) post(found->second.target, UnfollowRank{found->first});
  requests_.erase(found);
}

void RelayTable::on(const std::string& node, const RankOutput& message, const Round*) {
  const auto found = sent_to(node, message.number, true);
  if (found == requests_.end()) return;
  if (message.kind == RankOutput::Kind::refused) {
    refuse(found, message.content);
    return;
  }
  auto& request = found->second;
  request.in_flight += relayed_bytes(message);
  if (request.in_flight > RelayLimits::final_window) {
    post(node, UnfollowRank{message.number});
    refuse(found, fmt::format("the agent on host {} sent more output than it may", request.host));
    return;
  }
  tell(request, message.kind, message.content);
}

void RelayTable::on(const std::string& node, const OutputTaken& message, const Round*) {
  const auto found = asked_by(node, message.number, true);
  if (found == requests_.end()) return;
  auto& request = found->second;
  const auto of_former = std::min<std::size_t>(message.bytes, request.earlier);
  const auto taken = std::min<std::size_t>(message.bytes - of_former, request.in_flight);
  request.earlier -= of_former;
  request.in_flight -= taken;
  if (taken == 0 || request.target.empty()) return;
  post(request.target, OutputTaken{.number = found->first, .bytes = static_cast<std::uint32_t>(taken)});
}

void RelayTable::on(const std::string& node, const SignalRank& message, const Round* round) {
  auto why = refusal(message.rank, round);
  if (requests_.size() >= max_requests)
    why = fmt::format("the agents of the job have {} such requests already", requests_.size());
  if (asked_by(node, message.number, false) != requests_.end()) why = "the number of the request is in use";
  if (!why.empty()) return post(node, SignalAnswer{message.number, why});
  const auto& member = *member_of(*round, message.rank);
  const auto number = next_number_++;
  requests_.emplace(number, Request{.asker = node,
                                    .number = message.number,
                                    .rank = message.rank,
                                    .target = member.node_id,
                                    .host = member.host,
                                    .follows = false});
  auto passed_on = message;
  passed_on.number = number;
  post(member.node_id, std::move(passed_on));
}

void RelayTable::on(const std::string& node, const SignalAnswer& message, const Round*) {
  const auto found = sent_to(node, message.number, false);
  if (found != requests_.end()) refuse(found, message.problem);
}

// ---- helpers

RelayTable::Requests::iterator RelayTable::asked_by(const std::string& node, std::uint64_t number, bool follows) {
  return std::find_if(requests_.begin(), requests_.end(), [&](const auto& each) {
    const Request& request = each.second;
    return request.number == number && request.follows == follows && request.asker == node;
  });
}

RelayTable::Requests::iterator RelayTable::sent_to(const std::string& node, std::uint64_t number, bool follows) {
  const auto found = requests_.find(number);
  const bool matches = found != requests_.end() && found->second.target == node && found->second.follows == follows;
  return matches ? found : requests_.end();
}

std::string RelayTable::refusal(int rank, const Round* round) const {
  if (!round) return fmt::format("no worker of rank {} runs now", rank);
  return member_of(*round, rank) ? "" : no_rank_text(rank, *round);
}

void RelayTable::send_to_target(Request request, const RoundMember& member, bool again) {
  const auto number = next_number_++;
  request.target = member.node_id;
  request.host = member.host;
  post(member.node_id, FollowRank{.number = number, .rank = request.rank, .again = again});
  requests_.emplace(number, std::move(request));
}

// A target that has the rank still has followed its new worker by itself.
void RelayTable::move(std::uint64_t number, const Round& round) {
  const auto found = requests_.find(number);
  const auto* member = member_of(round, found->second.rank);
  if (member && member->node_id == found->second.target) return;
  if (!found->second.target.empty()) post(found->second.target, UnfollowRank{number});
  if (!member) {
    refuse(found, no_rank_text(found->second.rank, round));
    return;
  }
  Request request = std::move(found->second);
  requests_.erase(found);
  request.earlier += std::exchange(request.in_flight, 0);
  if (!request.host.empty() && request.host != member->host)
    notice(request, fmt::format("rank {} runs on host {} now", request.rank, member->host));
  send_to_target(std::move(request), *member, true);
}

// Answers a request for the last time.
RelayTable::Requests::iterator RelayTable::refuse(Requests::iterator request, const std::string& why) {
  const Request& one = request->second;
  if (one.follows)
    tell(one, RankOutput::Kind::refused, why);
  else
    post(one.asker, SignalAnswer{one.number, why});
  return requests_.erase(request);
}

void RelayTable::notice(Request& request, std::string text) {
  request.earlier += relayed_bytes({.content = text});
  tell(request, RankOutput::Kind::notice, std::move(text));
}

void RelayTable::tell(const Request& request, RankOutput::Kind kind, std::string text) {
  post(request.asker, RankOutput{.number = request.number, .kind = kind, .content = std::move(text)});
}

void RelayTable::post(const std::string& node, RelayMessage message) {
  deliveries_.push_back({node, std::move(message)});
}

RelayTable::Deliveries RelayTable::take_deliveries() {
  return std::exchange(deliveries_, {});
}

}  // namespace ddprun
