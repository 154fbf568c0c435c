#include "ddprun/worker/comm/elastic/peer_list.h"

#include <algorithm>
#include <charconv>
#include <chrono>

#include <fmt/core.h>

#include "ddprun/common/error.h"
#include "ddprun/common/log.h"
#include "ddprun/worker/comm/health/diagnosis.h"

namespace ddprun::comm {
namespace {

constexpr std::chrono::seconds goodbye_bound{2};

std::optional<std::string> find(Store& store, const std::string& key, Deadline deadline) {
  if (!store.check({key}, deadline)) return std::nullopt;
  return store.get(key, deadline);
}

Verdict failure_of(Store& store, const PeerList& peer_list, Deadline deadline) {
  const auto text = find(store, peer_list.group + "failure", deadline);
  return text ? decode_verdict(*text) : Verdict{};
}

ElasticMember member(Store& store, const PeerList& peer_list, int rank, const std::string& cause, Deadline deadline) {
  return {peer_list.name_of(rank), rank, decode_arriving(store.get(peer_list.came_key(rank), deadline)).process, cause};
}

// A death says more than the failure that came of it, and several that died at once fail their group but once.
std::optional<ElasticMember> find_gone(Store& store, const PeerList& peer_list, int rank, const Verdict& failure,
                                       Deadline deadline) {
  if (const auto cause = find(store, peer_list.gone_key(rank), deadline))
    return member(store, peer_list, rank, *cause, deadline);
  if (std::find(failure.lost.begin(), failure.lost.end(), rank) == failure.lost.end()) return std::nullopt;
  return member(store, peer_list, rank, failure.message, deadline);
}

}  // namespace

std::optional<int> PeerList::rank_of(const std::string& name) const {
  const auto found = std::find(members.begin(), members.end(), name);
  if (found == members.end()) return std::nullopt;
  return static_cast<int>(found - members.begin());
}

void leave_will(Store& store, const std::string& key, const std::string& text, Deadline deadline) {
  try {
    store.set_will(key, text, deadline);
  } catch (const Error& error) {
    if (error.code() != Errc::unsupported) throw;
  }
}

void tell_failure(Store& store, const std::string& group, const Verdict& failure, Deadline deadline) noexcept try {
  store.compare_set(group + "failure", "", encode(failure), deadline);
} catch (const Error& error) {
  log::debug("telling the others of a failure: {}", error.what());
}

std::string encode(const Arriving& arriving) {
  return fmt::format("{}\n{}", arriving.former ? std::to_string(*arriving.former) : "", arriving.process);
}

Arriving decode_arriving(std::string_view text) {
  const auto line = text.substr(0, text.find('\n'));
  Arriving arriving;
  arriving.process = text.substr(std::min(line.size() + 1, text.size()));
  std::uint64_t former = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), former);
  if (error == std::errc() && end == line.data() + line.size()) arriving.former = former;
  return arriving;
}

std::optional<ElasticMember> find_gone(Store& store, const PeerList& peer_list, int rank, Deadline deadline) {
  return find_gone(store, peer_list, rank, failure_of(store, peer_list, deadline), deadline);
}

std::vector<ElasticMember> find_lost(Store& store, const PeerList& peer_list, Deadline deadline) {
  const auto failure = failure_of(store, peer_list, deadline);
  std::vector<ElasticMember> lost;
  for (int rank = 0; rank < static_cast<int>(peer_list.members.size()); ++rank)
    if (const auto gone = find_gone(store, peer_list, rank, failure, deadline)) lost.push_back(*gone);
  return lost;
}

namespace {

using Arrivals = std::vector<Arriving>;  // by rank

Arrivals arrivals_of(Store& store, const PeerList& peer_list, Deadline deadline) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < static_cast<int>(peer_list.members.size()); ++rank)
    keys.push_back(peer_list.came_key(rank));
  Arrivals arrivals;
  for (const auto& text : store.multi_get(keys, deadline)) arrivals.push_back(decode_arriving(text));
  return arrivals;
}

// Whether the process of that name goes on: another one may have taken the name.
bool goes_on(const std::string& name, const PeerList& before, const PeerList& now, const Arrivals& arrivals) {
  const auto rank = now.rank_of(name);
  return rank && arrivals[static_cast<std::size_t>(*rank)].former >= before.generation;
}

std::vector<ElasticMember> gone_since(Store& store, const PeerList& before, const PeerList& now,
                                      const Arrivals& arrivals, Deadline deadline) {
  std::vector<ElasticMember> gone;
  const auto lost = find_lost(store, before, deadline);
  for (int rank = 0; rank < static_cast<int>(before.members.size()); ++rank) {
    if (goes_on(before.name_of(rank), before, now, arrivals)) continue;
    const auto known = std::find_if(lost.begin(), lost.end(), [&](const auto& each) { return each.rank == rank; });
    const auto let_go = fmt::format("generation {} has no place for it", now.generation);
    gone.push_back(known != lost.end() ? *known : member(store, before, rank, let_go, deadline));
  }
  return gone;
}

// Who was not in the last generation that any of them was in.
std::vector<ElasticMember> newcomers_to(const PeerList& now, const Arrivals& arrivals) {
  std::optional<std::uint64_t> last;
  for (const auto& each : arrivals) last = std::max(last, each.former);
  std::vector<ElasticMember> newcomers;
  for (int rank = 0; rank < static_cast<int>(arrivals.size()); ++rank) {
    const auto& [former, process] = arrivals[static_cast<std::size_t>(rank)];
    if (!last || former != last) newcomers.push_back({now.name_of(rank), rank, process});
  }
  return newcomers;
}

}  // namespace

MembershipChange find_change(Store& store, const PeerList* before, const PeerList& now, Deadline deadline) {
  const auto arrivals = arrivals_of(store, now, deadline);
  return {before ? gone_since(store, *before, now, arrivals, deadline) : std::vector<ElasticMember>(),
          newcomers_to(now, arrivals)};
}

DepartureNotice::~DepartureNotice() {
  if (key_.empty()) return;
  try {
    const auto soon = Deadline::in(goodbye_bound);
    store_->set(key_, "it left", soon);
    store_->clear_will(soon);
  } catch (const Error& error) {
    log::debug("leaving the members: {}", error.what());
  }
}

void DepartureNotice::belong_to(const PeerList& peer_list, int rank, Deadline deadline) {
  key_ = peer_list.gone_key(rank);
  leave_will(*store_, key_, "its process died or its connection broke", deadline);
}

}  // namespace ddprun::comm
