#include "worker/comm/elastic/agreement_session.h"

#include <algorithm>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/core.h>

#include "common/error.h"
#include "common/log.h"
#include "worker/comm/group_options.h"
#include "worker/comm/health/group_failure.h"

namespace ddprun::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::chrono::seconds store_timeout{10};

// The interval is longer for thousands of members, so that they do not keep the store busy.
milliseconds agreement_interval(std::size_t members) {
  return std::clamp(milliseconds(2 * members), milliseconds(50), milliseconds(2000));
}

// Returns the position of the member that this one watches: the next in the list that was in the previous generation.
// So every member that is gone is watched by one that is not. Returns none if there is no such member.
std::optional<int> find_watched(const Agreement& agreement, const AgreementOptions& options) {
  if (!options.last_agreed) return std::nullopt;
  const auto size = static_cast<int>(agreement.members().size());
  for (int step = 1; step < size; ++step) {
    const int position = (agreement.position() + step) % size;
    const auto& name = agreement.members()[static_cast<std::size_t>(position)];
    if (options.last_agreed->rank_of(name) && !options.known_lost.contains(name)) return position;
  }
  return std::nullopt;
}

class AgreementSession {
 public:
  AgreementSession(Agreement& agreement, AgreementOptions options)
      : agreement_(agreement),
        options_(std::move(options)),
        store_(*options_.store),
        watched_(find_watched(agreement, options_)),
        begun_(Clock::now()),
        deadline_(deadline_after(options_.timeout)),
        wake_on_stop_(options_.stop, Wake{store_}) {}

  Agreed run() {
    auto request = agreement_.begin();
    while (!std::holds_alternative<Agreement::Committed>(request)) {
      if (auto* failed = std::get_if<Agreement::Failed>(&request)) throw Error(failed->error);
      request = std::visit([this](const auto& each) { return this->execute(each); }, request);
    }
    return {peer_list(), std::move(deferred_last_will_)};
  }

 private:
  struct Wake {
    Store& store;
    void operator()() const noexcept { store.wake(); }
  };

  PeerList peer_list() const { return peer_list_of(agreement_, options_.prefix); }
  std::string key(const char* name) const { return peer_list().attempt + name; }
  static Deadline soon() { return Deadline::in(store_timeout); }

  // The watched member is looked for in the same round trip.
  Agreement::Request execute(const Agreement::Propose& request) {
    std::vector<StoreCall> calls{FindCall{key("decision")}, CompareSetCall{key("proposal"), "", request.text},
                                 SetWillCall{key("decision"), request.last_will}};
    const auto own = calls.size();
    if (watched_) {
      const auto look = calls_of_gone(*options_.last_agreed, watched_rank());
      calls.insert(calls.end(), look.begin(), look.end());
    }
    const StoreResults results = store_.execute(calls, soon());
    watched_may_be_gone_ = watched_ && tell_of_gone(std::span(results).subspan(own), watched_rank());
    return agreement_.proposed(results[0], results[1].value());
  }
  // The last will of the group comes first, in the same round trip, so that a member that counts has one.
  Agreement::Request execute(const Agreement::Join&) {
    if (watched_may_be_gone_)
      if (const auto gone = watched_if_gone()) return agreement_.lost(gone->name, gone->process, gone->cause);
    deferred_last_will_ = std::make_unique<DeferredLastWill>(options_.connect(), agreement_, peer_list().group);
    const auto record = encode(JoinRecord{options_.last_generation, agreement_.identity()});
    const auto results = deferred_last_will_->store()->execute(
        {deferred_last_will_->call(), SetCall{peer_list().joined_key(agreement_.position()), record},
         AddCall{key("count"), 1}},
        soon());
    return agreement_.counted(std::stoll(results.back().value()));
  }
  Agreement::Request execute(const Agreement::Decide& request) {
    return agreement_.decided(store_.compare_set(key("decision"), "", request.text, soon()));
  }
  Agreement::Request execute(const Agreement::Await&) {
    const auto poll = Deadline::in(agreement_interval(agreement_.members().size()));
    try {
      if (!options_.stop.stop_requested())
        return agreement_.decided(store_.wait_get(key("decision"), earlier(deadline_, poll)));
    } catch (const Error& error) {
      if (error.code() != Errc::timeout) throw;
    }
    if (const auto decision = store_.execute({FindCall{key("decision")}}, soon()).front())
      return agreement_.decided(*decision);
    if (options_.stop.stop_requested()) return agreement_.aborted();
    if (const auto gone = watched_if_gone()) return agreement_.lost(gone->name, gone->process, gone->cause);
    if (!deadline_.expired()) return Agreement::Await{};
    const auto waited = std::chrono::duration<double>(Clock::now() - begun_).count();
    return agreement_.deadline_passed(missing(), waited);
  }
  // run() ends with these.
  static Agreement::Request execute(const Agreement::Committed& request) { return request; }
  static Agreement::Request execute(const Agreement::Failed& request) { return request; }

  // Returns the watched member's rank in the previous generation. REQUIRES: watched_
  int watched_rank() const {
    return *options_.last_agreed->rank_of(agreement_.members()[static_cast<std::size_t>(*watched_)]);
  }

  // Returns the watched member, if it is gone and has not joined.
  std::optional<ElasticMember> watched_if_gone() {
    if (!watched_) return std::nullopt;
    const auto gone = find_gone(store_, *options_.last_agreed, watched_rank(), soon());
    if (!gone || store_.check({peer_list().joined_key(*watched_)}, soon())) return std::nullopt;
    return gone;
  }

  std::vector<std::string> missing() {
    std::vector<std::string> names;
    for (int position = 0; position < static_cast<int>(agreement_.members().size()); ++position)
      if (!store_.check({peer_list().joined_key(position)}, soon())) names.push_back(peer_list().name_of(position));
    return names;
  }

  Agreement& agreement_;
  const AgreementOptions options_;
  Store& store_;
  const std::optional<int> watched_;
  bool watched_may_be_gone_ = false;
  const Clock::time_point begun_;
  const Deadline deadline_;
  const std::stop_callback<Wake> wake_on_stop_;
  std::unique_ptr<DeferredLastWill> deferred_last_will_;
};

}  // namespace

DeferredLastWill::DeferredLastWill(std::shared_ptr<Store> store, const Agreement& agreement, const std::string& group)
    : store_(std::move(store)),
      group_(group),
      who_(fmt::format("rank {} ({})", agreement.position(), agreement.identity())),
      loss_(failure_by_loss(agreement.position(), agreement.identity())) {}

StoreCall DeferredLastWill::call() const {
  return SetWillCall{group_ + "failure", encode(loss_)};
}

void DeferredLastWill::report(const std::exception& cause) noexcept {
  report_failure(*store_, group_, {Errc::peer_lost, fmt::format("{}: {}", who_, cause.what())},
                 Deadline::in(store_timeout));
}

DeferredLastWill::~DeferredLastWill() {
  if (handed_over_) return;
  try {
    store_->clear_will(Deadline::in(store_timeout));
  } catch (const Error& error) {
    log::debug("cannot clear a deferred last will: {}", error.what());
  }
}

PeerList peer_list_of(const Agreement& agreement, const std::string& prefix) {
  const auto keys = fmt::format("{}generation/{}/", prefix, agreement.generation());
  return {agreement.generation(), fmt::format("{}attempt/{}/", keys, agreement.attempt()),
          fmt::format("{}group/{}/", keys, agreement.attempt()), agreement.members()};
}

Agreed execute(Agreement& agreement, AgreementOptions options) {
  return AgreementSession(agreement, std::move(options)).run();
}

}  // namespace ddprun::comm
