#include "worker/comm/backends/shm/shm_group.h"

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/rounding.h"
#include "worker/comm/backends/local/self_group.h"
#include "worker/comm/backends/shm/regions.h"
#include "worker/comm/backends/shm/segment_layout.h"
#include "worker/comm/backends/shm/shm_collectives.h"
#include "worker/comm/backends/shm/shm_transfers.h"
#include "worker/comm/bootstrap/await_ranks.h"
#include "worker/comm/execution/previous_group.h"
#include "worker/comm/execution/transport_group.h"

namespace ddprun::comm {
namespace {

// A staging slot has a section of at least one cache line for each rank.
void expect_section_for_each_rank(const GroupOptions& options) {
  constexpr std::size_t page = 4096;
  const auto needed = static_cast<std::size_t>(options.size) * cache_line_bytes;
  if (options.config.staging_bytes >= needed) return;
  throw make_error(Errc::usage, "staging_bytes {} is too small for the {} ranks that share memory: set {} or more",
                   options.config.staging_bytes, options.size, round_up(needed, page));
}

class ShmTransport : public Transport {
 public:
  ShmTransport(const GroupOptions& options, int threads_per_rank)
      : rank_(options.rank),
        size_(options.size),
        staging_bytes_(options.config.staging_bytes),
        threads_per_rank_(threads_per_rank),
        regions_(std::make_shared<OwnRegions>(segments_for(options))) {
    expect_section_for_each_rank(options);
  }

  ~ShmTransport() override {
    if (connected_) shared_->publish(PeerState::left);
  }

  void connect(Store& store, const std::string& prefix, Deadline deadline) override {
    SegmentLayout layout(rank_ == 0 ? create(store, prefix, deadline) : attach(store, prefix, deadline), size_,
                         staging_bytes_, threads_per_rank_);
    layout.processors().add_own();
    // Rank 0 must keep the segment open until all ranks have opened it.
    exchange(store, prefix + "attached/", rank_, size_, "", interrupted_, deadline);
    shared_.emplace(std::move(layout), *this);
    connected_ = true;
  }

  TransportTraits traits() const override { return {.backend = "shm"}; }
  void execute(const Collective& collective) override { shared_->collectives.execute(collective); }
  NonblockingCollectives* nonblocking() override { return &shared_->collectives; }
  std::unique_ptr<Transfer> start_transfer(const Operation& operation, Span memory) override {
    return shared_->transfers.start(operation, memory);
  }
  RegisteredBuffer allocate(std::size_t bytes) override { return {regions_->allocate(bytes), bytes}; }
  // Elements are reduced in the order of the ranks.
  bool reduces_elements_alike(const Operation&) const override { return true; }

  void interrupt() noexcept override {
    interrupted_ = true;
    if (connected_) shared_->publish(PeerState::broken);
  }

 private:
  struct Shared {
    Shared(SegmentLayout segment, ShmTransport& owner)
        : layout(std::move(segment)),
          collectives(layout, owner.rank_, *owner.regions_, owner.interrupted_),
          transfers(layout, owner.rank_, *owner.regions_, owner.interrupted_),
          peer_state(layout.rank(owner.rank_).peer_state) {}
    // Sets a state; one other than present is final. Also wakes this process's own threads.
    void publish(PeerState state) noexcept {
      auto present = PeerState::present;
      peer_state.compare_exchange_strong(present, state);
      collectives.wake();
      transfers.wake();
    }
    SegmentLayout layout;
    ShmCollectives collectives;
    ShmTransfers transfers;
    std::atomic<PeerState>& peer_state;
  };

  SharedSegment create(Store& store, const std::string& prefix, Deadline deadline) {
    auto segment = SharedSegment::create(SegmentLayout::bytes_for(size_, staging_bytes_));
    store.set(prefix + "segment", segment.address(), deadline);
    return segment;
  }

  SharedSegment attach(Store& store, const std::string& prefix, Deadline deadline) {
    const auto address = await_ranks(store, {{0, prefix + "segment"}}, size_, interrupted_, deadline).front();
    return SharedSegment::open(address, SegmentLayout::bytes_for(size_, staging_bytes_));
  }

  const int rank_;
  const int size_;
  const std::size_t staging_bytes_;
  const int threads_per_rank_;
  std::atomic<bool> interrupted_ = false;
  std::atomic<bool> connected_ = false;
  const std::shared_ptr<OwnRegions> regions_;
  std::optional<Shared> shared_;
};

void expect_one_host(const HostMap& hosts, int rank) {
  for (int other = 0; other < hosts.ranks(); ++other) {
    if (hosts.host_of(other) == hosts.host_of(rank)) continue;
    throw make_error(Errc::unsupported,
                     "rank {} and rank {} cannot share memory: they run on different hosts, in different containers or "
                     "as different users",
                     rank, other);
  }
}

}  // namespace

std::shared_ptr<Transport> make_shm_transport(const GroupOptions& options, int threads_per_rank) {
  return std::make_shared<ShmTransport>(options, threads_per_rank);
}

std::unique_ptr<ProcessGroup> make_shm_group(const GroupOptions& options) {
  if (options.size == 1) return make_self_group(segments_for(options));
  const auto factory = [&options](const RankLocations& locations) {
    expect_one_host(host_map(locations), options.rank);
    return make_shm_transport(options);
  };
  return make_transport_group(factory, options, {"shm", make_shm_group});
}

}  // namespace ddprun::comm
