#include "worker/comm/backends/shm/segment_layout.h"

#include <algorithm>
#include <bit>
#include <sched.h>
#include <thread>

#include "common/rounding.h"

namespace ddprun::comm {
namespace {

constexpr std::size_t page = 4096;

constexpr std::size_t whole_pages(std::size_t bytes) {
  return round_up(bytes, page);
}

}  // namespace

// Processors beyond the set's size are left out: the count only decides how long a rank spins.
void ProcessorSet::add_own() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool known = ::sched_getaffinity(0, sizeof(set), &set) == 0;
  const auto all = known ? std::size_t{CPU_SETSIZE} : std::size_t{std::thread::hardware_concurrency()};
  for (std::size_t i = 0; i < std::min(all, words_.size() * 64); ++i)
    if (!known || CPU_ISSET(i, &set)) words_[i / 64].fetch_or(std::uint64_t{1} << i % 64, std::memory_order_relaxed);
}

int ProcessorSet::count() const {
  int count = 0;
  for (const auto& word : words_) count += std::popcount(word.load(std::memory_order_relaxed));
  return count;
}

SegmentLayout::Offsets::Offsets(std::size_t ranks, std::size_t slot_bytes)
    : states(whole_pages(sizeof(ProcessorSet))),
      payloads(states + whole_pages(ranks * sizeof(RankState))),
      slots(payloads + ranks * payload_places * max_payload_bytes),
      channels(slots + ranks * 2 * slot_bytes),
      channel_buffers(channels + ranks * ranks * whole_pages(sizeof(Channel))),
      end(channel_buffers + ranks * ranks * Channel::buffers * Channel::chunk_bytes) {}

std::size_t SegmentLayout::bytes_for(int ranks, std::size_t slot_bytes) {
  return Offsets(index(ranks), slot_bytes).end;
}

SegmentLayout::SegmentLayout(SharedSegment segment, int ranks, std::size_t slot_bytes, int threads_per_rank)
    : segment_(std::move(segment)),
      ranks_(ranks),
      slot_bytes_(slot_bytes),
      section_bytes_(slot_bytes / index(ranks) / cache_line_bytes * cache_line_bytes),
      threads_per_rank_(threads_per_rank),
      offsets_(index(ranks), slot_bytes),
      states_(reinterpret_cast<RankState*>(at(offsets_.states))) {}

Channel& SegmentLayout::channel(int from, int to) const {
  const auto number = index(from) * index(ranks_) + index(to);
  return *reinterpret_cast<Channel*>(at(offsets_.channels + number * whole_pages(sizeof(Channel))));
}

std::byte* SegmentLayout::channel_buffer(int from, int to, std::uint32_t chunk) const {
  const auto number = index(from) * index(ranks_) + index(to);
  const auto buffer = number * Channel::buffers + chunk % Channel::buffers;
  return at(offsets_.channel_buffers + buffer * Channel::chunk_bytes);
}

}  // namespace ddprun::comm
