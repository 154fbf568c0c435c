#include "worker/comm/execution/transport_group.h"

#include <algorithm>
#include <optional>
#include <stop_token>

#include "worker/comm/bootstrap/await_ranks.h"
#include "worker/comm/bootstrap/ready_stores.h"
#include "worker/comm/execution/caller_runs_executor.h"
#include "worker/comm/execution/group_health.h"
#include "worker/comm/execution/message_executor.h"
#include "worker/comm/execution/queue_executor.h"

namespace ddprun::comm {
namespace {

using std::chrono::milliseconds;

class TransportGroup final : public ProcessGroup {
 public:
  // transport: null when the factory makes it.
  TransportGroup(std::shared_ptr<Transport> transport, const TransportFactory& factory, const DevicePlace& place,
                 const GroupOptions& options, GroupKind kind);
  ~TransportGroup() override;

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  std::string_view backend() const override { return backend_; }

  WorkPtr start(const Call& call) override;
  RegisteredBuffer allocate(std::size_t bytes) override { return transport_->allocate(bytes); }
  std::uint64_t bytes_sent() const override { return transport_->bytes_sent(); }
  bool reduces_elements_alike(const Call& call) const override {
    return transport_->reduces_elements_alike(call.operation);
  }
  std::optional<Error> failure() const override { return health_.cause(); }
  void abort(const std::string& reason) override;
  std::unique_ptr<ProcessGroup> make_subgroup(const std::vector<int>& ranks, const std::string& name) override;

 private:
  milliseconds timeout_of(OpOptions options) const {
    return std::min(options.timeout.value_or(options_.config.timeout), longest_timeout);
  }
  void connect(const TransportFactory& factory, const DevicePlace& place);
  RankLocations exchange_locations(Store& store, const DevicePlace& place, Deadline deadline) const;
  void create_executors();

  const GroupOptions options_;
  const GroupKind kind_;
  std::shared_ptr<Transport> transport_;
  std::string_view backend_;  // set once connected

  // These are created once connected, and stand before the health, whose monitor cancels them.
  std::unique_ptr<Executor> collectives_;
  std::unique_ptr<Executor> messages_;
  GroupHealth health_;

  struct AbortOnStop {
    TransportGroup& group;
    const char* reason = "the group was told to stop";
    void operator()() const { group.abort(reason); }
  };
  std::optional<std::stop_callback<AbortOnStop>> abort_on_stop_;
};

TransportGroup::TransportGroup(std::shared_ptr<Transport> transport, const TransportFactory& factory,
                               const DevicePlace& place, const GroupOptions& options, GroupKind kind)
    : options_(options), kind_(kind), transport_(std::move(transport)), health_(options_, kind_.backend) {
  abort_on_stop_.emplace(options_.stop, AbortOnStop{*this});
  connect(factory, place);
  create_executors();
}

// A failure here, of a connection or of a peer's memory, may be the first sign of a peer's death: the store reports the
// death a moment later.
void TransportGroup::connect(const TransportFactory& factory, const DevicePlace& place) {
  const std::stop_callback<AbortOnStop> give_up(options_.give_up,
                                                AbortOnStop{*this, "it was given up while it formed"});
  std::optional<Error> failure;
  try {
    const auto deadline = deadline_after(options_.config.timeout);
    auto* const ready = options_.ready_stores.get();
    const auto store = take_or(ready ? &ready->bootstrap : nullptr, options_.connect_store);
    if (!transport_) transport_ = factory(exchange_locations(*store, place, deadline));
    health_.attach(*transport_);
    transport_->connect(*store, options_.prefix, deadline);
    return;
  } catch (const Error& error) {
    failure = error;
  } catch (const std::exception& error) {  // a transport's own exception
    failure = Error(Errc::connection_lost, error.what());
  }
  if (const auto cause = health_.cause_behind(*failure)) throw Error(*cause);
  health_.publish({failure->code(), fmt::format("rank {} ({}): {}", rank(), health_.identity(), failure->what())});
  throw Error(*failure);
}

RankLocations TransportGroup::exchange_locations(Store& store, const DevicePlace& place, Deadline deadline) const {
  auto own = own_location(options_.config);
  own.device = place.device;
  own.deviceless = place.deviceless;
  RankLocations locations;
  for (const auto& text :
       exchange(store, options_.prefix + "place/", rank(), size(), encode(own), health_.broken_flag(), deadline)) {
    locations.push_back(decode_location(text));
  }
  return locations;
}

void TransportGroup::create_executors() {
  const auto traits = transport_->traits();
  const RankInfo rank_info{rank(), size()};
  backend_ = traits.backend;
  if (transport_->nonblocking()) {
    collectives_ = std::make_unique<CallerRunsExecutor>(*transport_, health_, rank_info);
  } else {
    collectives_ = std::make_unique<QueueExecutor>(*transport_, health_, rank_info);
  }
  messages_ = std::make_unique<MessageExecutor>(*transport_, health_);
  health_.group_formed({collectives_.get(), messages_.get()}, traits);
}

TransportGroup::~TransportGroup() {
  abort_on_stop_.reset();
  if (const int count = health_.unfinished(); count > 0) {
    health_.break_with(
        make_error(Errc::aborted, "the group was destroyed with {} operations unfinished", count),
        GroupFailure{Errc::peer_lost, fmt::format("rank {} ({}) left the group with {} operations unfinished", rank(),
                                                  health_.identity(), count)});
  }
  collectives_->shutdown();
  messages_->shutdown();
}

WorkPtr TransportGroup::start(const Call& call) {
  const auto timeout = timeout_of(call.options);
  return (call.operation.point_to_point() ? messages_ : collectives_)->submit(call, timeout);
}

void TransportGroup::abort(const std::string& reason) {
  health_.break_with(Error(Errc::aborted, reason),
                     GroupFailure{Errc::peer_lost, fmt::format("rank {} ({}) aborted the group: {}", rank(),
                                                               health_.identity(), reason)});
}

std::unique_ptr<ProcessGroup> TransportGroup::make_subgroup(const std::vector<int>& ranks, const std::string& name) {
  if (!kind_.make_sibling) return ProcessGroup::make_subgroup(ranks, name);
  const auto position = [&](int each) { return std::find(ranks.begin(), ranks.end(), each) - ranks.begin(); };
  auto options = options_;
  options.rank = static_cast<int>(position(rank()));
  options.size = static_cast<int>(ranks.size());
  options.prefix += "sub/" + name + "/";
  options.previous_group.reset();  // the parent's
  options.ready_stores.reset();
  options.store_host.reset();
  if (options_.store_host && position(*options_.store_host) < options.size)
    options.store_host = static_cast<int>(position(*options_.store_host));
  options.give_up = health_.broken_token();  // a rank lost before it reaches the subgroup breaks the parent
  try {
    return kind_.make_sibling(options);
  } catch (const Error& error) {
    // A rank lost to the subgroup is lost to the parent too, which names it by its rank in the parent.
    const bool parent_fails_too = error.code() == Errc::peer_lost;
    if (const auto cause = health_.await_cause(parent_fails_too ? milliseconds(2000) : milliseconds(0)))
      throw Error(*cause);
    throw;
  }
}

}  // namespace

std::unique_ptr<ProcessGroup> make_transport_group(std::shared_ptr<Transport> transport, const GroupOptions& options,
                                                   GroupKind kind) {
  return std::make_unique<TransportGroup>(std::move(transport), TransportFactory(), DevicePlace(), options, kind);
}

std::unique_ptr<ProcessGroup> make_transport_group(const TransportFactory& factory, const GroupOptions& options,
                                                   GroupKind kind, const DevicePlace& place) {
  return std::make_unique<TransportGroup>(nullptr, factory, place, options, kind);
}

}  // namespace ddprun::comm
