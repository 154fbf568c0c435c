#include "ddprun/worker/comm/shm/board.h"

namespace ddprun::comm {
namespace {

constexpr std::size_t page = 4096;

constexpr std::size_t whole_pages(std::size_t bytes) {
  return (bytes + page - 1) / page * page;
}

// In this order: the ranks' states, their slots, the channels, the channels' staging memory.
struct Layout {
  std::size_t slots, channels, staging, end;
  Layout(std::size_t ranks, std::size_t slot_bytes)
      : slots(whole_pages(ranks * sizeof(RankState))),
        channels(slots + ranks * 2 * slot_bytes),
        staging(channels + ranks * ranks * whole_pages(sizeof(Channel))),
        end(staging + ranks * ranks * Channel::pieces_at_once * Channel::piece_bytes) {}
};

std::size_t index(int rank) {
  return static_cast<std::size_t>(rank);
}

}  // namespace

std::size_t Board::bytes_for(int ranks, std::size_t slot_bytes) {
  return Layout(index(ranks), slot_bytes).end;
}

Board::Board(SharedSegment segment, int ranks, std::size_t slot_bytes)
    : segment_(std::move(segment)), ranks_(ranks), slot_bytes_(slot_bytes) {}

RankState& Board::rank(int rank) const {
  return *reinterpret_cast<RankState*>(at(index(rank) * sizeof(RankState)));
}

std::byte* Board::slot(int rank, std::uint32_t phase) const {
  return at(Layout(index(ranks_), slot_bytes_).slots + (index(rank) * 2 + phase % 2) * slot_bytes_);
}

Channel& Board::channel(int from, int to) const {
  const auto number = index(from) * index(ranks_) + index(to);
  return *reinterpret_cast<Channel*>(
      at(Layout(index(ranks_), slot_bytes_).channels + number * whole_pages(sizeof(Channel))));
}

std::byte* Board::staging(int from, int to, std::uint32_t piece) const {
  const auto number = index(from) * index(ranks_) + index(to);
  const auto place = number * Channel::pieces_at_once + piece % Channel::pieces_at_once;
  return at(Layout(index(ranks_), slot_bytes_).staging + place * Channel::piece_bytes);
}

}  // namespace ddprun::comm
