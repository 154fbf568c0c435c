#include "ddprun/worker/comm/elastic_group.h"

#include <chrono>
#include <unistd.h>
#include <utility>

#include "ddprun/common/error.h"
#include "ddprun/common/host_port.h"
#include "ddprun/worker/comm/forming/agreement.h"
#include "ddprun/worker/comm/forming/agreement_session.h"
#include "ddprun/worker/comm/forming/backends.h"
#include "ddprun/worker/comm/forming/roster.h"
#include "ddprun/worker/comm/forming/terms.h"
#include "ddprun/worker/comm/transport/heritage.h"

namespace ddprun {
namespace {

using comm::Agreement;

Deadline soon() {
  return Deadline::in(std::chrono::seconds(10));
}

// A client that failed otherwise may answer no more.
bool answered(const Error& error) {
  return error.code() == Errc::aborted || error.code() == Errc::usage;
}

std::string identity() {
  return fmt::format("pid {} on host {}", ::getpid(), local_host_name());
}

}  // namespace

ElasticGroup::ElasticGroup(std::string backend, GroupOptions base, std::string self)
    : backend_(std::move(backend)), base_(std::move(base)), self_(std::move(self)) {
  auto placed = base_;
  placed.rank = 0;
  placed.size = 1;
  comm::check(placed);
  comm::find_backend(backend_);
}
ElasticGroup::~ElasticGroup() = default;

ProcessGroup& ElasticGroup::reconfigure(std::uint64_t generation, const std::vector<std::string>& members) {
  auto options = base_;
  options.size = static_cast<int>(members.size());
  Agreement agreement(generation, members, self_, identity(), comm::terms_of(backend_, options));
  std::stop_token stop;
  {
    const std::lock_guard lock(mutex_);
    if (generation < next_) {
      throw make_error(Errc::usage, "generation {} is over: this process has been in generation {} since", generation,
                       next_ - 1);
    }
    forming_ = {};
    abort_reason_.reset();
    stop = forming_.get_token();
  }
  auto [roster, will] = agree(agreement, stop);
  options.rank = agreement.position();
  options.prefix = roster.group;
  options.store_host.reset();
  options.stop = stop;
  const auto agreed = std::make_shared<const comm::Roster>(std::move(roster));
  {
    const std::lock_guard lock(mutex_);
    next_ = generation + 1;
    known_lost_.clear();
  }
  options.heritage = end_present(agreed);
  std::shared_ptr<ProcessGroup> next;
  try {
    leave_farewell(*agreed, options.rank);
    next = connect(options);
  } catch (const std::exception& error) {
    will->tell(error);
    throw;
  }
  const std::lock_guard lock(mutex_);
  expect_not_aborted();
  group_ = std::move(next);
  before_ = std::exchange(stood_, agreed);
  return *group_;
}

// Throws unless the members agree.
comm::Agreed ElasticGroup::agree(Agreement& agreement, std::stop_token stop) try {
  const auto store = this->store();
  comm::AgreementSetting setting{
      .store = store, .connect = base_.connect_store, .prefix = base_.prefix, .timeout = base_.timeout, .stop = stop};
  {
    const std::lock_guard lock(mutex_);
    if (stood_) setting.stood = stood_->generation;
    setting.former = agreed_;
    setting.known_lost = known_lost_;
  }
  return comm::carry_out(agreement, std::move(setting));
} catch (const Error& error) {
  // Without an answer that ends the agreement, the will that was left for it has to take effect.
  if (!answered(error)) forget_store();
  const std::lock_guard lock(mutex_);
  expect_not_aborted();
  throw;
}

std::unique_ptr<ProcessGroup> ElasticGroup::connect(const GroupOptions& options) try {
  return comm::make_group(backend_, options);
} catch (const Error&) {
  const std::lock_guard lock(mutex_);
  expect_not_aborted();
  throw;
}

// REQUIRES mutex_. Its caller's own words, whatever it has broken off.
void ElasticGroup::expect_not_aborted() const {
  if (abort_reason_) throw Error(Errc::aborted, *abort_reason_);
}

// A clean goodbye, unless operations are pending: those fail. Returns what it leaves to the next one.
std::shared_ptr<comm::Heritage> ElasticGroup::end_present(const std::shared_ptr<const comm::Roster>& next) {
  std::shared_ptr<ProcessGroup> before;
  std::shared_ptr<const comm::Roster> roster;
  {
    const std::lock_guard lock(mutex_);
    before = std::exchange(group_, nullptr);
    roster = std::exchange(agreed_, next);
  }
  auto transport = before ? before->legacy() : nullptr;
  if (!transport) return nullptr;
  comm::Heritage heritage{std::move(transport), roster->group, before->size(), {}};
  for (const auto& member : next->members) heritage.kept.push_back(roster->rank_of(member).value_or(-1));
  return std::make_shared<comm::Heritage>(std::move(heritage));
}

// On a connection of its own; on another one where that broke meanwhile.
void ElasticGroup::leave_farewell(const comm::Roster& roster, int rank) {
  try {
    if (farewell_) return farewell_->belong_to(roster, rank, soon());
  } catch (const Error& error) {
    if (answered(error)) throw;
  }
  farewell_ = std::make_unique<comm::Farewell>(base_.connect_store());
  farewell_->belong_to(roster, rank, soon());
}

std::shared_ptr<Store> ElasticGroup::store() {
  {
    const std::lock_guard lock(mutex_);
    if (store_) return store_;
  }
  auto store = base_.connect_store();
  const std::lock_guard lock(mutex_);
  if (!store_) store_ = std::move(store);
  return store_;
}

void ElasticGroup::forget_store() {
  const std::lock_guard lock(mutex_);
  store_.reset();
}

template <class Question>
auto ElasticGroup::ask(Question question) try {
  return question(*store());
} catch (const Error& error) {
  if (!answered(error)) forget_store();
  throw;
}

std::shared_ptr<const comm::Roster> ElasticGroup::last_agreed() {
  const std::lock_guard lock(mutex_);
  return agreed_;
}

std::vector<ElasticMember> ElasticGroup::lost() {
  const auto roster = last_agreed();
  return roster ? lost_of(roster) : std::vector<ElasticMember>();
}

std::vector<std::string> ElasticGroup::survivors() {
  const auto roster = last_agreed();
  if (!roster) return {};
  auto names = roster->members;
  for (const auto& each : lost_of(roster)) std::erase(names, each.name);
  return names;
}

std::vector<ElasticMember> ElasticGroup::lost_of(const std::shared_ptr<const comm::Roster>& roster) {
  auto lost = ask([&](Store& store) { return comm::find_lost(store, *roster, soon()); });
  const std::lock_guard lock(mutex_);
  if (agreed_ == roster)
    for (const auto& each : lost) known_lost_.insert(each.name);
  return lost;
}

MembershipChange ElasticGroup::change() {
  std::shared_ptr<const comm::Roster> before, now;
  {
    const std::lock_guard lock(mutex_);
    before = before_;
    now = stood_;
  }
  if (!now) return {};
  return ask([&](Store& store) { return comm::find_change(store, before.get(), *now, soon()); });
}

ProcessGroup& ElasticGroup::group() {
  const std::lock_guard lock(mutex_);
  if (group_) return *group_;
  if (!agreed_) throw make_error(Errc::usage, "member {} has not been in any generation", self_);
  throw make_error(Errc::usage, "member {} is in no group: generation {} did not come together", self_,
                   agreed_->generation);
}

void ElasticGroup::abort(const std::string& reason) {
  std::shared_ptr<ProcessGroup> present;
  std::stop_source forming(std::nostopstate);
  {
    const std::lock_guard lock(mutex_);
    abort_reason_ = reason;
    present = group_;
    forming = forming_;
  }
  if (present) present->abort(reason);
  forming.request_stop();
}

}  // namespace ddprun
