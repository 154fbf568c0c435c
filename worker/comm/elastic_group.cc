#include "worker/comm/elastic_group.h"

#include <chrono>
#include <unistd.h>
#include <utility>

#include "common/blocked_signals.h"
#include "common/error.h"
#include "common/host_port.h"
#include "worker/comm/bootstrap/group_config.h"
#include "worker/comm/bootstrap/ready_stores.h"
#include "worker/comm/elastic/agreement.h"
#include "worker/comm/elastic/agreement_session.h"
#include "worker/comm/elastic/peer_list.h"
#include "worker/comm/execution/previous_group.h"
#include "worker/comm/health/exit_futex.h"
#include "worker/comm/memory/segment_reserve.h"
#include "worker/comm/registry/backends.h"

namespace ddprun {
namespace {

using comm::Agreement;

Deadline soon() {
  return Deadline::in(std::chrono::seconds(10));
}

// Returns whether the error leaves the connection to the store usable. After another error it may be broken.
bool store_answered(const Error& error) {
  return error.code() == Errc::aborted || error.code() == Errc::mismatch || error.code() == Errc::usage;
}

std::shared_ptr<comm::SegmentReserve> segments_of_all(const GroupOptions& base) {
  if (auto given = comm::segments_for(base)) return given;
  return std::make_shared<comm::SegmentReserve>(comm::SegmentReserve::Options{});
}

std::string identity() {
  return fmt::format("pid {} on host {}", ::getpid(), local_host_name());
}

}  // namespace

ElasticGroup::ElasticGroup(std::string backend, GroupOptions base, std::string self)
    : backend_(std::move(backend)),
      base_(std::move(base)),
      self_(std::move(self)),
      segments_(segments_of_all(base_)),
      exit_futex_(comm::ExitFutex::of_this_process()) {
  auto options = base_;
  options.rank = 0;
  options.size = 1;
  comm::check(options);
  comm::find_backend(backend_);
}
ElasticGroup::~ElasticGroup() = default;

ProcessGroup& ElasticGroup::reconfigure(std::uint64_t generation, const std::vector<std::string>& members) {
  auto options = base_;
  options.size = static_cast<int>(members.size());
  Agreement agreement(generation, members, self_, identity(), comm::group_config(backend_, options));
  std::stop_token stop;
  {
    const std::lock_guard lock(mutex_);
    begin(generation);
    stop = stop_reconfigure_.get_token();
  }
  auto [peer_list, last_will] = agree(agreement, stop);
  options.rank = agreement.position();
  options.prefix = peer_list.group;
  options.store_host.reset();
  options.stop = stop;
  const auto agreed = std::make_shared<const comm::PeerList>(std::move(peer_list));
  {
    const std::lock_guard lock(mutex_);
    least_generation_ = generation + 1;
    known_lost_.clear();
  }
  options.previous_group = end_current(agreed);
  std::shared_ptr<ProcessGroup> next;
  std::future<void> notice;  // ends last: a store that is silent does not delay the report
  try {
    options.ready_stores = std::make_shared<comm::ReadyStores>(last_will->store(), store());
    notice = begin_notice(*agreed, options.rank);
    next = connect(options);
    notice.get();
  } catch (const std::exception& error) {
    last_will->report(error);
    forget_store();  // the group may have broken it
    throw;
  }
  if (!options.ready_stores->monitor) last_will->handed_over();
  const std::lock_guard lock(mutex_);
  expect_not_aborted();
  group_ = std::move(next);
  previous_ = std::exchange(active_, agreed);
  return *group_;
}

// REQUIRES mutex_.
void ElasticGroup::begin(std::uint64_t generation) {
  if (generation < least_generation_)
    throw make_error(Errc::usage, "generation {} is over: this process has been in generation {} since", generation,
                     least_generation_ - 1);
  if (generation < superseded_below_) throw Error(Errc::aborted, superseded_reason_);
  newest_generation_ = generation;
  stop_reconfigure_ = {};
  not_agreed_.reset();
  abort_reason_.reset();
}

// Throws unless the members agree.
comm::Agreed ElasticGroup::agree(Agreement& agreement, std::stop_token stop) try {
  const auto store = this->store();
  comm::AgreementOptions options{.store = store,
                                 .connect = base_.connect_store,
                                 .prefix = base_.prefix,
                                 .timeout = base_.config.timeout,
                                 .stop = stop};
  {
    const std::lock_guard lock(mutex_);
    if (active_) options.last_generation = active_->generation;
    if (agreed_ != agreed_elsewhere_) options.last_agreed = agreed_;
    options.known_lost = known_lost_;
  }
  return comm::execute(agreement, std::move(options));
} catch (const Error& error) {
  // The agreement is still open: closing the connection lets its last will take effect.
  if (!store_answered(error)) forget_store();
  const std::lock_guard lock(mutex_);
  not_agreed_ = std::make_shared<const comm::PeerList>(comm::peer_list_of(agreement, base_.prefix));
  expect_not_aborted();
  throw;
}

// Renews the departure notice, while the group connects. The first one comes before: no group forms with a process that
// cannot connect to the store. Where no thread can be started, it is renewed when the result is asked for.
std::future<void> ElasticGroup::begin_notice(const comm::PeerList& peer_list, int rank) {
  if (!departure_notice_) {
    renew_departure_notice(peer_list, rank);
    return std::async(std::launch::deferred, [] {});
  }
  const BlockedSignals blocked;
  return std::async(std::launch::async | std::launch::deferred,
                    [this, &peer_list, rank] { renew_departure_notice(peer_list, rank); });
}

std::unique_ptr<ProcessGroup> ElasticGroup::connect(const GroupOptions& options) try {
  return comm::make_group(backend_, options);
} catch (const Error&) {
  const std::lock_guard lock(mutex_);
  expect_not_aborted();
  throw;
}

// REQUIRES mutex_. The caller's reason takes precedence over the error that its abort led to.
void ElasticGroup::expect_not_aborted() const {
  if (abort_reason_) throw Error(Errc::aborted, *abort_reason_);
}

// Pending operations fail. Returns what the next group can use.
std::shared_ptr<comm::PreviousGroup> ElasticGroup::end_current(const std::shared_ptr<const comm::PeerList>& next) {
  std::shared_ptr<ProcessGroup> group;
  std::shared_ptr<const comm::PeerList> peer_list;
  {
    const std::lock_guard lock(mutex_);
    group = std::exchange(group_, nullptr);
    peer_list = std::exchange(agreed_, next);
  }
  segments_->begin_group();
  auto passed = std::make_shared<comm::PreviousGroup>(comm::PreviousGroup{.segments = segments_});
  auto transport = group ? group->reusable_transport() : nullptr;
  if (!transport) return passed;
  passed->transport = std::move(transport);
  passed->prefix = peer_list->group;
  passed->size = group->size();
  for (const auto& member : next->members) passed->kept.push_back(peer_list->rank_of(member).value_or(-1));
  return passed;
}

void ElasticGroup::store_moved(bool beside_store) {
  base_.beside_store = beside_store;
  forget_store();
  if (departure_notice_) departure_notice_->drop();
  departure_notice_.reset();
  const std::lock_guard lock(mutex_);
  not_agreed_.reset();
  agreed_elsewhere_ = agreed_;
  previous_.reset();  // its records are not in the new store
}

// Reconnects if the notice's connection has broken since.
void ElasticGroup::renew_departure_notice(const comm::PeerList& peer_list, int rank) {
  try {
    if (departure_notice_) return departure_notice_->move_to(peer_list, rank, soon());
  } catch (const Error& error) {
    if (store_answered(error)) throw;
  }
  departure_notice_ = std::make_unique<comm::DepartureNotice>(base_.connect_store());
  departure_notice_->move_to(peer_list, rank, soon());
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

template <class Query>
auto ElasticGroup::query_store(Query query) try {
  return query(*store());
} catch (const Error& error) {
  if (!store_answered(error)) forget_store();
  throw;
}

std::shared_ptr<const comm::PeerList> ElasticGroup::last_agreed() {
  const std::lock_guard lock(mutex_);
  return agreed_;
}

std::vector<ElasticMember> ElasticGroup::lost() {
  return lost(soon());
}

std::vector<ElasticMember> ElasticGroup::lost(Deadline deadline) {
  const auto peer_list = last_agreed();
  return peer_list ? lost_of(peer_list, deadline) : std::vector<ElasticMember>();
}

std::vector<std::string> ElasticGroup::survivors() {
  const auto peer_list = last_agreed();
  if (!peer_list) return {};
  auto names = peer_list->members;
  for (const auto& each : lost_of(peer_list, soon())) std::erase(names, each.name);
  return names;
}

std::vector<ElasticMember> ElasticGroup::lost_of(const std::shared_ptr<const comm::PeerList>& peer_list,
                                                 Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    if (peer_list == agreed_elsewhere_) return {};
  }
  auto lost = query_store([&](Store& store) { return comm::find_lost(store, *peer_list, deadline); });
  const std::lock_guard lock(mutex_);
  if (agreed_ == peer_list)
    for (const auto& each : lost) known_lost_.insert(each.name);
  return lost;
}

std::vector<std::string> ElasticGroup::absent(Deadline deadline) {
  std::shared_ptr<const comm::PeerList> peer_list;
  {
    const std::lock_guard lock(mutex_);
    peer_list = not_agreed_;
  }
  std::vector<std::string> names;
  for (std::size_t rank = 0; peer_list && rank < peer_list->members.size(); ++rank) {
    const auto key = peer_list->joined_key(static_cast<int>(rank));
    if (!query_store([&](Store& store) { return store.check({key}, deadline); }))
      names.push_back(peer_list->members[rank]);
  }
  return names;
}

MembershipChange ElasticGroup::change() {
  std::shared_ptr<const comm::PeerList> before, now;
  {
    const std::lock_guard lock(mutex_);
    before = previous_;
    now = active_;
  }
  if (!now) return {};
  return query_store([&](Store& store) { return comm::find_change(store, before.get(), *now, soon()); });
}

ProcessGroup& ElasticGroup::group() {
  const std::lock_guard lock(mutex_);
  if (group_) return *group_;
  if (!agreed_) throw make_error(Errc::usage, "member {} has not been in any generation", self_);
  throw make_error(Errc::usage, "member {} is in no group: generation {} did not form", self_, agreed_->generation);
}

void ElasticGroup::abort(const std::string& reason) {
  std::shared_ptr<ProcessGroup> group;
  std::stop_source stop(std::nostopstate);
  {
    const std::lock_guard lock(mutex_);
    abort_reason_ = reason;
    group = group_;
    stop = stop_reconfigure_;
  }
  if (group) group->abort(reason);
  stop.request_stop();
}

void ElasticGroup::abort_before(std::uint64_t generation, const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (generation > superseded_below_) {
      superseded_below_ = generation;
      superseded_reason_ = reason;
    }
    if (newest_generation_ >= generation) return;
  }
  abort(reason);
}

}  // namespace ddprun
