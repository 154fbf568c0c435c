#include "ddprun/worker/comm/backends/hierarchical/hierarchical_group.h"

#include <optional>
#include <string>

#include "ddprun/worker/comm/backends/gloo/gloo_group.h"
#include "ddprun/worker/comm/backends/hierarchical/hierarchical_collectives.h"
#include "ddprun/worker/comm/backends/hierarchical/rail.h"
#include "ddprun/worker/comm/backends/local/self_group.h"
#include "ddprun/worker/comm/backends/shm/shm_group.h"
#include "ddprun/worker/comm/bootstrap/host_map.h"
#include "ddprun/worker/comm/execution/placed_transport.h"
#include "ddprun/worker/comm/execution/transport_group.h"

namespace ddprun::comm {
namespace {

// A rank, and Gloo's loop: it has to get a core for the ranks' wait to end.
constexpr int threads_per_rank = 2;

// The same with another place: in a level.
GroupOptions placed(GroupOptions options, int rank, int size) {
  options.rank = rank;
  options.size = size;
  return options;
}

// Several hosts, one of them at least with several ranks.
class HierarchicalTransport : public BasicTransport {
 public:
  HierarchicalTransport(const GroupOptions& options, const HostMap& hosts)
      : hosts_(hosts),
        host_(hosts.host_of(options.rank)),
        local_rank_(hosts.local_rank_of(options.rank)),
        flat_(make_gloo_transport(options, Links::shared)) {
    const int local_size = hosts_.local_size(host_);
    const int leaders = hosts_.smallest_host();
    if (local_size > 1) local_ = make_shm_transport(placed(options, local_rank_, local_size), threads_per_rank);
    if (local_rank_ < leaders) rail_.emplace(make_gloo_transport(placed(options, host_, hosts_.hosts())));
    collectives_.emplace(Levels{hosts_, options.rank, local_.get(), rail_ ? &*rail_ : nullptr, leaders});
  }

  std::string_view backend() const override { return "hierarchical"; }

  // The flat one first: what it says of missing ranks names them by their own numbers.
  void connect(Store& store, const std::string& prefix, Deadline deadline) override {
    flat_->connect(store, prefix, deadline);
    if (local_) local_->connect(store, prefix + "host/" + std::to_string(host_) + "/", deadline);
    if (rail_) rail_->transport().connect(store, prefix + "rail/" + std::to_string(local_rank_) + "/", deadline);
  }

  void execute(const Collective& collective) override {
    if (collectives_->supports(collective.operation)) {
      collectives_->execute(collective);
    } else {
      flat_->execute(collective);
    }
  }

  RegisteredBuffer allocate(std::size_t bytes) override {
    return local_ ? local_->allocate(bytes) : BasicTransport::allocate(bytes);
  }

  std::unique_ptr<Transfer> start(const Operation& operation, Span memory) override {
    return flat_->start(operation, memory);
  }

  void interrupt() noexcept override {
    if (local_) local_->interrupt();
    if (rail_) rail_->transport().interrupt();
    flat_->interrupt();
  }

 private:
  const HostMap hosts_;
  const int host_;
  const int local_rank_;
  const std::shared_ptr<Transport> flat_;  // for what has no form in two levels
  std::shared_ptr<Transport> local_;
  std::optional<Rail> rail_;
  std::optional<HierarchicalCollectives> collectives_;
};

}  // namespace

std::shared_ptr<Transport> make_hierarchical_transport(const GroupOptions& options, const RankLocations& places) {
  const auto hosts = host_map(places);
  if (hosts.hosts() == 1) return make_shm_transport(options);
  auto reachable = options;
  reachable.local_address = address_for_peers(places, options.rank);
  if (hosts.largest_host() == 1) return make_gloo_transport(reachable);
  return std::make_shared<HierarchicalTransport>(reachable, hosts);
}

std::unique_ptr<ProcessGroup> make_hierarchical_group(const GroupOptions& options) {
  if (options.size == 1) return make_self_group();
  const auto choose = [options](const RankLocations& places) { return make_hierarchical_transport(options, places); };
  return make_transport_group(make_placed_transport(options, choose), options,
                              {"hierarchical", make_hierarchical_group});
}

}  // namespace ddprun::comm
