#include "worker/cuda/emulator/nccl_transfer.h"

#include <algorithm>
#include <cstring>

#include "worker/cuda/emulator/nccl_values.h"

namespace ddprun::cuda::emulator {
namespace {

bool is_message(NcclKind kind) {
  return kind == NcclKind::send || kind == NcclKind::recv;
}

std::size_t element_size(const NcclHeader& header) {
  return size_of(static_cast<ncclDataType_t>(header.type));
}

// Returns the number of elements of a chunk, or of each rank's part of it in a reduce-scatter.
std::size_t chunk_elements(const NcclOperation& operation, int ranks) {
  const auto parts = operation.kind == NcclKind::reduce_scatter ? static_cast<std::size_t>(ranks) : std::size_t{1};
  return nccl_slot_bytes / parts / element_size(operation.header);
}

struct Range {
  std::size_t first, count;
};
Range range_of(const NcclOperation& operation, std::uint64_t chunk, int ranks) {
  const std::size_t most = chunk_elements(operation, ranks), first = chunk * most;
  return {first, std::min(most, operation.header.count - first)};
}

bool is_last(const NcclOperation& operation, std::uint64_t chunk, int ranks) {
  return (chunk + 1) * chunk_elements(operation, ranks) >= operation.header.count;
}

bool reduces(NcclKind kind) {
  return kind == NcclKind::allreduce || kind == NcclKind::reduce || kind == NcclKind::reduce_scatter;
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) std::memmove(to, from, bytes);
}

}  // namespace

NcclTransfer::NcclTransfer(std::shared_ptr<NcclSegment> segment, int rank, std::vector<NcclOperation> operations)
    : segment_(std::move(segment)), rank_(rank) {
  for (const auto& each : operations)
    all_.push_back({.operation = each, .chunk = 0, .has_posted = false, .done = false});
}

// Collectives follow each other, as messages of one direction between two ranks do.
bool NcclTransfer::follows_another(std::size_t at) const {
  const NcclOperation& own = all_[at].operation;
  return std::any_of(all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(at), [&](const Progress& earlier) {
    if (earlier.done) return false;
    const NcclOperation& other = earlier.operation;
    if (!is_message(own.kind)) return !is_message(other.kind);
    return own.kind == other.kind && own.peer == other.peer;
  });
}

bool NcclTransfer::advance() {
  bool all_done = true;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    auto& progress = all_[i];
    while (!progress.done && !follows_another(i) && step(progress)) {
    }
    all_done = all_done && progress.done;
  }
  return all_done;
}

// Returns whether something has happened.
bool NcclTransfer::step(Progress& progress) {
  if (progress.operation.kind == NcclKind::send) return step_send(progress);
  if (progress.operation.kind == NcclKind::recv) return step_recv(progress);
  return step_collective(progress);
}

bool NcclTransfer::step_collective(Progress& progress) {
  const auto at = own().taken.load();
  const auto behind = [&](auto NcclRank::*counter, std::uint64_t least) {
    for (int rank = 0; rank < size(); ++rank)
      if ((of(rank).*counter).load() < least) return true;
    return false;
  };
  if (!progress.has_posted) {
    if (behind(&NcclRank::taken, at)) return false;
    post_collective(progress.operation, progress.chunk);
    own().posted.store(at + 1);
    progress.has_posted = true;
    return true;
  }
  if (behind(&NcclRank::posted, at + 1) || !all_agree(progress.operation.header)) return false;
  take_collective(progress.operation, progress.chunk);
  progress.done = is_last(progress.operation, progress.chunk, size());
  progress.has_posted = false;
  ++progress.chunk;
  own().taken.store(at + 1);
  return true;
}

bool NcclTransfer::all_agree(const NcclHeader& header) const {
  for (int rank = 0; rank < size(); ++rank) {
    const NcclHeader& other = of(rank).header;
    if (other.kind != header.kind || other.type != header.type || other.op != header.op || other.root != header.root ||
        other.count != header.count)
      return false;
  }
  return true;
}

// Posts this rank's input of the chunk, multiplied by its factor.
void NcclTransfer::post_collective(const NcclOperation& operation, std::uint64_t chunk) {
  const auto [first, count] = range_of(operation, chunk, size());
  const auto unit = element_size(operation.header);
  NcclRank& slot = own();
  slot.header = operation.header;
  const bool is_divided = operation.kind == NcclKind::reduce_scatter;
  for (int part = 0; part < (is_divided ? size() : 1); ++part) {
    const auto index = static_cast<std::size_t>(part);
    std::byte* const to = slot.data.data() + index * count * unit;
    if (operation.kind != NcclKind::broadcast || operation.header.root == rank_)
      copy_bytes(to, operation.input + (index * operation.header.count + first) * unit, count * unit);
    if (reduces(operation.kind) && operation.header.factor != 1)
      multiply(static_cast<ncclDataType_t>(operation.header.type), to, operation.header.factor, count);
  }
}

void NcclTransfer::take_collective(const NcclOperation& operation, std::uint64_t chunk) {
  const auto [first, count] = range_of(operation, chunk, size());
  const auto unit = element_size(operation.header);
  std::byte* const to = operation.output + first * unit;
  if (operation.kind == NcclKind::allgather) {
    for (int rank = 0; rank < size(); ++rank)
      copy_bytes(to + static_cast<std::size_t>(rank) * operation.header.count * unit, of(rank).data.data(),
                 count * unit);
    return;
  }
  if (operation.kind == NcclKind::broadcast) return copy_bytes(to, of(operation.header.root).data.data(), count * unit);
  if (operation.kind == NcclKind::reduce && operation.header.root != rank_) return;
  const auto type = static_cast<ncclDataType_t>(operation.header.type);
  const auto op = static_cast<ncclRedOp_t>(operation.header.op);
  const auto part = operation.kind == NcclKind::reduce_scatter ? static_cast<std::size_t>(rank_) * count * unit : 0;
  copy_bytes(to, of(0).data.data() + part, count * unit);
  for (int rank = 1; rank < size(); ++rank) combine(op, type, to, of(rank).data.data() + part, count);
  if (op == ncclAvg) multiply(type, to, 1.0 / size(), count);
}

bool NcclTransfer::step_send(Progress& progress) {
  auto& box =
      (*segment_)->mailboxes[static_cast<std::size_t>(rank_)][static_cast<std::size_t>(progress.operation.peer)];
  if (box.taken.load() != box.posted.load()) return false;
  const auto [first, count] = range_of(progress.operation, progress.chunk, 1);
  const auto unit = element_size(progress.operation.header);
  box.header = progress.operation.header;
  copy_bytes(box.data.data(), progress.operation.input + first * unit, count * unit);
  box.posted.fetch_add(1);
  progress.done = is_last(progress.operation, progress.chunk, 1);
  ++progress.chunk;
  return true;
}

bool NcclTransfer::step_recv(Progress& progress) {
  auto& box =
      (*segment_)->mailboxes[static_cast<std::size_t>(progress.operation.peer)][static_cast<std::size_t>(rank_)];
  const NcclHeader& expected = progress.operation.header;
  if (box.taken.load() == box.posted.load() || box.header.count != expected.count || box.header.type != expected.type)
    return false;
  const auto [first, count] = range_of(progress.operation, progress.chunk, 1);
  const auto unit = element_size(expected);
  copy_bytes(progress.operation.output + first * unit, box.data.data(), count * unit);
  box.taken.fetch_add(1);
  progress.done = is_last(progress.operation, progress.chunk, 1);
  ++progress.chunk;
  return true;
}

}  // namespace ddprun::cuda::emulator
