#include "worker/comm/subgroups.h"

#include <algorithm>
#include <set>

#include <fmt/ranges.h>

#include "common/error.h"

namespace ddprun {
namespace comm {

std::vector<int> ranks_of_colour(const std::vector<SplitRequest>& requests, int rank) {
  const auto request = [&](int r) -> const SplitRequest& { return requests[static_cast<std::size_t>(r)]; };
  std::vector<int> ranks;
  if (!request(rank).colour) return ranks;
  for (int r = 0; r < static_cast<int>(requests.size()); ++r)
    if (request(r).colour == request(rank).colour) ranks.push_back(r);
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) { return request(a).key < request(b).key; });
  return ranks;
}

void check_ranks(const std::vector<int>& ranks, int size) {
  const auto refuse = [&](const std::string& why) {
    return make_error(Errc::usage, "the ranks [{}] of {} form no group: {}", fmt::join(ranks, ", "), size, why);
  };
  if (ranks.empty()) throw refuse("a group needs at least one");
  std::set<int> seen;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= size) throw refuse(fmt::format("there is no rank {}", rank));
    if (!seen.insert(rank).second) throw refuse(fmt::format("rank {} is named twice", rank));
  }
}

}  // namespace comm

namespace {

// Every rank's numbers, in rank order.
std::vector<std::int64_t> gather(ProcessGroup& parent, const std::vector<std::int64_t>& own) {
  const auto size = own.size() * static_cast<std::size_t>(parent.size());
  const auto memory =
      parent.allocate((own.size() + size) * sizeof(std::int64_t));  // every back end accepts its own memory
  const auto values = memory.as<std::int64_t>();
  std::copy(own.begin(), own.end(), values.begin());
  const auto all = values.subspan(own.size());
  parent.allgather({values.data(), own.size(), DType::int64}, {all.data(), size, DType::int64}, {.blocking = true});
  return {all.begin(), all.end()};
}

// Returns a digest that is the same at every run and on every machine.
std::int64_t digest(const std::vector<int>& ranks) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const int rank : ranks) hash = (hash ^ static_cast<std::uint64_t>(rank)) * 0x100000001b3;
  return static_cast<std::int64_t>(hash ^ ranks.size());
}

std::unique_ptr<ProcessGroup> form(ProcessGroup& parent, const std::vector<int>& ranks) {
  const auto number = parent.number_subgroup();
  if (std::find(ranks.begin(), ranks.end(), parent.rank()) == ranks.end()) return nullptr;
  return parent.make_subgroup(ranks, fmt::format("{}.{}", number, ranks.front()));
}

}  // namespace

std::unique_ptr<ProcessGroup> split(ProcessGroup& parent, std::optional<std::int64_t> colour, std::int64_t key) {
  const auto numbers = gather(parent, {colour ? 1 : 0, colour.value_or(0), key});
  std::vector<comm::SplitRequest> requests;
  for (std::size_t i = 0; i < numbers.size(); i += 3)
    requests.push_back({numbers[i] != 0 ? std::optional(numbers[i + 1]) : std::nullopt, numbers[i + 2]});
  return form(parent, comm::ranks_of_colour(requests, parent.rank()));
}

// The digests are exchanged before the list is checked, so that a list that is invalid at one rank fails at all of
// them.
std::unique_ptr<ProcessGroup> subgroup(ProcessGroup& parent, const std::vector<int>& ranks) {
  const auto digests = gather(parent, {digest(ranks)});
  comm::check_ranks(ranks, parent.size());
  for (std::size_t r = 1; r < digests.size(); ++r) {
    if (digests[r] == digests[0]) continue;
    throw make_error(Errc::mismatch, "rank {} asks for another subgroup than rank 0; rank {} for the ranks [{}]", r,
                     parent.rank(), fmt::join(ranks, ", "));
  }
  return form(parent, ranks);
}

}  // namespace ddprun
