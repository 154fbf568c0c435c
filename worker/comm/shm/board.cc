#include "ddprun/worker/comm/shm/board.h"

namespace ddprun::comm {
namespace {

constexpr std::size_t page = 4096;

constexpr std::size_t whole_pages(std::size_t bytes) {
  return (bytes + page - 1) / page * page;
}

// In this order: the ranks' states, their gifts, their slots, the channels, the channels' staging memory.
struct Layout {
  std::size_t gifts, slots, channels, staging, end;
  Layout(std::size_t ranks, std::size_t slot_bytes, std::size_t gift_bytes)
      : gifts(whole_pages(ranks * sizeof(RankState))),
        slots(gifts + ranks * rounds_at_once * gift_bytes),
        channels(slots + ranks * 2 * slot_bytes),
        staging(channels + ranks * ranks * whole_pages(sizeof(Channel))),
        end(staging + ranks * ranks * Channel::pieces_at_once * Channel::piece_bytes) {}
};

std::size_t index(int rank) {
  return static_cast<std::size_t>(rank);
}

}  // namespace

std::size_t Board::bytes_for(int ranks, std::size_t slot_bytes) {
  return Layout(index(ranks), slot_bytes, largest_gift).end;
}

Board::Board(SharedSegment segment, int ranks, std::size_t slot_bytes)
    : segment_(std::move(segment)), ranks_(ranks), slot_bytes_(slot_bytes) {}

RankState& Board::rank(int rank) const {
  return *reinterpret_cast<RankState*>(at(index(rank) * sizeof(RankState)));
}

std::byte* Board::slot(int rank, std::uint32_t phase) const {
  return at(Layout(index(ranks_), slot_bytes_, largest_gift).slots + (index(rank) * 2 + phase % 2) * slot_bytes_);
}

std::byte* Board::gift(int rank, std::uint64_t round) const {
  const auto number = index(rank) * rounds_at_once + round % rounds_at_once;
  return at(Layout(index(ranks_), slot_bytes_, largest_gift).gifts + number * largest_gift);
}

Channel& Board::channel(int from, int to) const {
  const auto number = index(from) * index(ranks_) + index(to);
  return *reinterpret_cast<Channel*>(
      at(Layout(index(ranks_), slot_bytes_, largest_gift).channels + number * whole_pages(sizeof(Channel))));
}

std::byte* Board::staging(int from, int to, std::uint32_t piece) const {
  const auto number = index(from) * index(ranks_) + index(to);
  const auto place = number * Channel::pieces_at_once + piece % Channel::pieces_at_once;
  return at(Layout(index(ranks_), slot_bytes_, largest_gift).staging + place * Channel::piece_bytes);
}

}  // namespace ddprun::comm
