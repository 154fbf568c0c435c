// ShmTransfers: messages between two ranks, which are threads here.
#include "worker/comm/backends/shm/shm_transfers.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t slot_bytes = 4096;
constexpr std::size_t bytes = 4 * Channel::chunk_bytes;

struct Rank {
  Rank(const SegmentLayout& layout, int rank) : transfers(layout, rank, *regions, interrupted) {}
  std::unique_ptr<Transfer> start(OpKind kind, void* memory) {
    const Span span{memory, bytes, DType::uint8};
    return transfers.start({.kind = kind, .dtype = DType::uint8, .count = bytes, .peer = kind == OpKind::send ? 1 : 0},
                           span);
  }

  std::shared_ptr<OwnRegions> regions = std::make_shared<OwnRegions>();
  std::atomic<bool> interrupted = false;
  ShmTransfers transfers;
};

struct TwoRanks {
  TwoRanks() { layout.processors().add_own(); }
  // Waits until the sender has offered a message.
  void await_offer() {
    layout.channel(0, 1).posted.wait(
        1, {receiver.interrupted, peer(), std::nullopt, layout.spin_policy(), Deadline::never()});
  }
  std::atomic<PeerState>& peer() const { return layout.rank(0).peer_state; }

  SegmentLayout layout{SharedSegment::create(SegmentLayout::bytes_for(2, slot_bytes)), 2, slot_bytes};
  Rank sender{layout, 0}, receiver{layout, 1};
};

}  // namespace

TEST_CASE("a receiver copies a message out of the sender's registered memory, which the sender keeps until then") {
  TwoRanks ranks;
  const auto memory = ranks.sender.regions->allocate(bytes);
  std::fill_n(memory.get(), bytes, std::byte{7});
  auto sent = std::async(std::launch::async, [&] { ranks.sender.start(OpKind::send, memory.get())->wait(30s); });
  ranks.await_offer();
  CHECK(sent.wait_for(0s) == std::future_status::timeout);
  std::vector<std::byte> received(bytes);
  ranks.receiver.start(OpKind::recv, received.data())->wait(30s);
  sent.get();
  CHECK(received == std::vector<std::byte>(bytes, std::byte{7}));
}

TEST_CASE("a message whose sender has left or broken the group is not received: its memory may be another's") {
  TwoRanks ranks;
  auto memory = ranks.sender.regions->allocate(bytes);
  auto sent = std::async(std::launch::async, [&] { ranks.sender.start(OpKind::send, memory.get())->wait(30s); });
  ranks.await_offer();
  ranks.sender.interrupted = true;
  ranks.peer() = GENERATE(PeerState::broken, PeerState::left);
  ranks.sender.transfers.wake();
  CHECK_THROWS_AS(sent.get(), std::runtime_error);
  std::vector<std::byte> received(bytes);
  CHECK_THROWS_AS(ranks.receiver.start(OpKind::recv, received.data())->wait(30s), std::runtime_error);
}
