#include "ddprun/worker/comm/elastic/agreement_session.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/core.h>

#include "ddprun/common/error.h"
#include "ddprun/common/log.h"
#include "ddprun/worker/comm/group_options.h"
#include "ddprun/worker/comm/health/diagnosis.h"

namespace ddprun::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::chrono::seconds answer_bound{10};  // of the store

// Thousands of members look around less often, so that the store is not kept busy by it.
milliseconds look_for(std::size_t members) {
  return std::clamp(milliseconds(2 * members), milliseconds(50), milliseconds(2000));
}

// Each member looks after the next one in the list that was in the generation before, so that whoever is gone has
// somebody who notices. Its position; none: there is nobody to look after.
std::optional<int> next_former(const Agreement& agreement, const AgreementSetting& setting) {
  if (!setting.former) return std::nullopt;
  const auto size = static_cast<int>(agreement.members().size());
  for (int step = 1; step < size; ++step) {
    const int position = (agreement.position() + step) % size;
    const auto& name = agreement.members()[static_cast<std::size_t>(position)];
    if (setting.former->rank_of(name) && !setting.known_lost.contains(name)) return position;
  }
  return std::nullopt;
}

class AgreementSession {
 public:
  AgreementSession(Agreement& agreement, AgreementSetting setting)
      : agreement_(agreement),
        setting_(std::move(setting)),
        store_(*setting_.store),
        next_former_(next_former(agreement, setting_)),
        begun_(Clock::now()),
        deadline_(deadline_after(setting_.timeout)),
        wake_on_stop_(setting_.stop, Wake{store_}) {}

  Agreed run() {
    auto request = agreement_.begin();
    while (!std::holds_alternative<Agreement::Committed>(request)) {
      if (auto* failed = std::get_if<Agreement::Failed>(&request)) {
        clear_will();
        throw Error(failed->error);
      }
      request = std::visit([this](const auto& each) { return this->execute(each); }, request);
    }
    clear_will();
    return {peer_list(), std::move(stand_in_)};
  }

 private:
  struct Wake {
    Store& store;
    void operator()() const noexcept { store.wake(); }
  };

  // Of this attempt.
  PeerList peer_list() const {
    const auto prefix = fmt::format("{}generation/{}/", setting_.prefix, agreement_.generation());
    return {agreement_.generation(), fmt::format("{}attempt/{}/", prefix, agreement_.attempt()),
            fmt::format("{}group/{}/", prefix, agreement_.attempt()), agreement_.members()};
  }
  std::string key(const char* name) const { return peer_list().attempt + name; }
  static Deadline soon() { return Deadline::in(answer_bound); }

  Agreement::Request execute(const Agreement::Look&) {
    if (!store_.check({key("decision")}, soon())) return agreement_.looked(std::nullopt);
    return agreement_.looked(store_.get(key("decision"), soon()));
  }
  Agreement::Request execute(const Agreement::Propose& request) {
    return agreement_.proposed(store_.compare_set(key("proposal"), "", request.text, soon()));
  }
  Agreement::Request execute(const Agreement::CountIn& request) {
    if (const auto gone = look_after_next()) return agreement_.lost(gone->name, gone->process, gone->cause);
    leave_will(store_, key("decision"), request.will, soon());
    stand_in_ = std::make_unique<DeferredLastWill>(setting_.connect(), agreement_, peer_list().group);
    store_.set(peer_list().came_key(agreement_.position()), encode(Arriving{setting_.stood, agreement_.identity()}),
               soon());
    return agreement_.counted(store_.add(key("count"), 1, soon()));
  }
  Agreement::Request execute(const Agreement::Decide& request) {
    return agreement_.decided(store_.compare_set(key("decision"), "", request.text, soon()));
  }
  Agreement::Request execute(const Agreement::Await&) {
    const auto look = Deadline::in(look_for(agreement_.members().size()));
    try {
      if (!setting_.stop.stop_requested()) store_.wait({key("decision")}, earlier(deadline_, look));
    } catch (const Error& error) {
      if (error.code() != Errc::timeout) throw;
    }
    if (store_.check({key("decision")}, soon())) return agreement_.decided(store_.get(key("decision"), soon()));
    if (setting_.stop.stop_requested()) return agreement_.given_up();
    if (const auto gone = look_after_next()) return agreement_.lost(gone->name, gone->process, gone->cause);
    if (!deadline_.expired()) return Agreement::Await{};
    const auto waited = std::chrono::duration<double>(Clock::now() - begun_).count();
    return agreement_.deadline_passed(missing(), waited);
  }
  // run() ends at these.
  static Agreement::Request execute(const Agreement::Committed& request) { return request; }
  static Agreement::Request execute(const Agreement::Failed& request) { return request; }

  // Who has not come, and is gone.
  std::optional<ElasticMember> look_after_next() {
    if (!next_former_) return std::nullopt;
    const auto& name = agreement_.members()[static_cast<std::size_t>(*next_former_)];
    const auto gone = find_gone(store_, *setting_.former, *setting_.former->rank_of(name), soon());
    if (!gone || store_.check({peer_list().came_key(*next_former_)}, soon())) return std::nullopt;
    return gone;
  }

  std::vector<std::string> missing() {
    std::vector<std::string> names;
    for (int position = 0; position < static_cast<int>(agreement_.members().size()); ++position)
      if (!store_.check({peer_list().came_key(position)}, soon())) names.push_back(peer_list().name_of(position));
    return names;
  }

  void clear_will() {
    try {
      store_.clear_will(soon());
    } catch (const Error& error) {
      if (error.code() != Errc::unsupported) log::debug("agreeing on a group: {}", error.what());
    }
  }

  Agreement& agreement_;
  const AgreementSetting setting_;
  Store& store_;
  const std::optional<int> next_former_;
  const Clock::time_point begun_;
  const Deadline deadline_;
  const std::stop_callback<Wake> wake_on_stop_;
  std::unique_ptr<DeferredLastWill> stand_in_;
};

}  // namespace

DeferredLastWill::DeferredLastWill(std::shared_ptr<Store> store, const Agreement& agreement, const std::string& group)
    : store_(std::move(store)),
      group_(group),
      who_(fmt::format("rank {} ({})", agreement.position(), agreement.identity())) {
  leave_will(*store_, group_ + "failure", encode(loss_of(agreement.position(), agreement.identity())),
             Deadline::in(answer_bound));
}

void DeferredLastWill::tell(const std::exception& cause) noexcept {
  tell_failure(*store_, group_, {Errc::peer_lost, fmt::format("{}: {}", who_, cause.what())},
               Deadline::in(answer_bound));
}

DeferredLastWill::~DeferredLastWill() {
  try {
    store_->clear_will(Deadline::in(answer_bound));
  } catch (const Error& error) {
    log::debug("a will that need not be cleared: {}", error.what());
  }
}

Agreed execute(Agreement& agreement, AgreementSetting setting) {
  return AgreementSession(agreement, std::move(setting)).run();
}

}  // namespace ddprun::comm
