#include "worker/comm/backends/hierarchical/hierarchical_group.h"

#include <optional>
#include <string>

#include "common/error.h"
#include "worker/comm/backends/gloo/gloo_group.h"
#include "worker/comm/backends/hierarchical/hierarchical_collectives.h"
#include "worker/comm/backends/hierarchical/rail.h"
#include "worker/comm/backends/shm/shm_group.h"
#include "worker/comm/bootstrap/host_map.h"

namespace ddprun::comm {
namespace {

// The rank's own thread and Gloo's loop thread, which needs a core while the ranks wait for each other.
constexpr int threads_per_rank = 2;

// Returns the same options for the rank within a level.
GroupOptions in_level(GroupOptions options, int rank, int size) {
  options.rank = rank;
  options.size = size;
  return options;
}

// The transport for several hosts, at least one of them with several ranks.
class HierarchicalTransport : public Transport {
 public:
  HierarchicalTransport(const GroupOptions& options, const HostMap& hosts)
      : hosts_(hosts),
        host_(hosts.host_of(options.rank)),
        local_rank_(hosts.local_rank_of(options.rank)),
        flat_(make_gloo_transport(options, Links::shared)) {
    const int local_size = hosts_.local_size(host_);
    const int leaders = hosts_.smallest_host();
    if (local_size > 1) local_ = make_shm_transport(in_level(options, local_rank_, local_size), threads_per_rank);
    if (local_rank_ < leaders) rail_.emplace(make_gloo_transport(in_level(options, host_, hosts_.hosts())));
    collectives_.emplace(Levels{hosts_, options.rank, local_.get(), rail_ ? &*rail_ : nullptr, leaders});
  }

  // Connects the flat transport first, because its errors name missing ranks by their numbers in the whole group.
  void connect(Store& store, const std::string& prefix, Deadline deadline) override {
    flat_->connect(store, prefix, deadline);
    if (local_) local_->connect(store, prefix + "host/" + std::to_string(host_) + "/", deadline);
    if (rail_) rail_->transport().connect(store, prefix + "rail/" + std::to_string(local_rank_) + "/", deadline);
  }

  TransportTraits traits() const override { return {.backend = "hierarchical"}; }

  void execute(const Collective& collective) override {
    if (collectives_->supports(collective.operation)) {
      collectives_->execute(collective);
    } else {
      flat_->execute(collective);
    }
  }

  std::unique_ptr<Transfer> start_transfer(const Operation& operation, Span memory) override {
    return flat_->start_transfer(operation, memory);
  }

  RegisteredBuffer allocate(std::size_t bytes) override {
    return local_ ? local_->allocate(bytes) : Transport::allocate(bytes);
  }

  // Reductions are in the order of the ranks within a host, then like Gloo's.
  bool reduces_elements_alike(const Operation& operation) const override {
    if (operation.kind == OpKind::reduce_scatter) return true;
    return hosts_.hosts() == 2 && commutes(operation.op) && collectives_->supports(operation);
  }

  std::uint64_t bytes_sent() const override {
    return flat_->bytes_sent() + (rail_ ? rail_->transport().bytes_sent() : 0);
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
  const std::shared_ptr<Transport> flat_;  // for operations that two levels do not support
  std::shared_ptr<Transport> local_;
  std::optional<Rail> rail_;
  std::optional<HierarchicalCollectives> collectives_;
};

}  // namespace

std::shared_ptr<Transport> make_hierarchical_transport(const GroupOptions& options, const RankLocations& locations) {
  const auto hosts = host_map(locations);
  if (hosts.hosts() == 1 || hosts.largest_host() == 1) {
    throw make_error(
        Errc::unsupported,
        "the hierarchical back end needs several hosts and two ranks on one of them: there are {} ranks on "
        "{} host(s)",
        hosts.ranks(), hosts.hosts());
  }
  auto reachable = options;
  reachable.config.local_address = address_for_peers(locations, options.rank);
  return std::make_shared<HierarchicalTransport>(reachable, hosts);
}

}  // namespace ddprun::comm
