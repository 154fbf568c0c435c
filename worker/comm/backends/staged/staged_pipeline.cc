#include "worker/comm/backends/staged/staged_pipeline.h"

#include <algorithm>
#include <utility>

namespace ddprun::comm {

StagedPipeline::StagedPipeline(ProcessGroup& host, std::size_t piece_bytes, int device)
    : host_(host), piece_bytes_(piece_bytes), to_host_(device), to_device_(device) {
  for (std::size_t i = 0; i < most_in_progress; ++i) slots_.emplace_back(device);
}

void StagedPipeline::add(StagedTask task) {
  const auto division = divide(task.call, host_.size(), piece_bytes_, host_.reduces_elements_alike(task.call));
  tasks_.push_back({std::move(task), division});
}

bool StagedPipeline::advance() {
  bool progress = false;
  while (begin_piece()) progress = true;
  bool precedes_all_in_group = true;  // the group's operations start in the order of the pieces
  for (auto& piece : pieces_) {
    if (piece.stage == Stage::to_host && !precedes_all_in_group) break;
    progress |= advance(piece);
    precedes_all_in_group = piece.stage != Stage::to_host;
  }
  while (!pieces_.empty() && pieces_.front().stage == Stage::to_device && pieces_.front().copied->reached()) {
    finish_oldest();
    progress = true;
  }
  return progress;
}

StagedPipeline::Running* StagedPipeline::next_to_begin() {
  const auto found =
      std::find_if(tasks_.begin(), tasks_.end(), [](const Running& each) { return each.begun < each.division.pieces; });
  return found == tasks_.end() ? nullptr : &*found;
}

// Queues the copies to the host.
bool StagedPipeline::begin_piece() {
  if (pieces_.size() == most_in_progress) return false;
  Running* const running = next_to_begin();
  if (!running) return false;
  const auto& call = running->task.call;
  auto* const memory = slots_[next_slot_].at_least(staging_bytes(call, running->division));
  next_slot_ = (next_slot_ + 1) % most_in_progress;
  auto staged = plan_staged_call(call, running->division, running->begun, {host_.rank(), host_.size()}, memory);
  if (running->begun++ == 0) {
    to_host_.follow(*running->task.ready);
    to_host_.record(call.options.events.begun);
    to_device_.follow(*running->task.ready);  // what is only written is used until then, too
  }
  for (const auto& each : staged.read) to_host_.to_host(memory + each.offset, each.device, each.bytes);
  pieces_.push_back({.of = running,
                     .staged = std::move(staged),
                     .memory = memory,
                     .stage = Stage::to_host,
                     .copied = to_host_.mark(),
                     .work = nullptr,
                     .copied_by = deadline_after(running->task.timeout)});
  return true;
}

// Takes a piece to its next stage.
bool StagedPipeline::advance(Piece& piece) {
  if (piece.stage == Stage::in_group) {
    if (!piece.work->done()) return false;
    piece.work->wait();  // throws its error
    copy_back(piece);
    return true;
  }
  if (!piece.copied->reached()) {
    if (piece.copied_by.expired()) throw_copy_timeout(piece.of->task.call, piece.of->task.timeout);
    return false;
  }
  if (piece.stage == Stage::to_device) return false;
  piece.work = host_.start(piece.staged.call);
  piece.stage = Stage::in_group;
  return true;
}

void StagedPipeline::copy_back(Piece& piece) {
  for (const auto& each : piece.staged.written)
    to_device_.to_device(each.device, piece.memory + each.offset, each.bytes);
  if (++piece.of->copied_back == piece.of->division.pieces) to_device_.record(piece.of->task.call.options.events.ended);
  piece.copied = to_device_.mark();
  piece.copied_by = deadline_after(piece.of->task.timeout);
  piece.stage = Stage::to_device;
}

// Completes tasks in the order of the pieces, to the first that the group has not finished.
void StagedPipeline::complete_finished() noexcept try {
  for (const auto& piece : pieces_) await_end(piece.work);
  for (auto& piece : pieces_) {
    if (piece.stage == Stage::to_host || piece.work->error()) break;
    if (piece.stage == Stage::in_group) copy_back(piece);
  }
  if (!to_device_.await_idle(Deadline::in(copies_bound))) return;
  while (!pieces_.empty() && pieces_.front().stage == Stage::to_device && pieces_.front().copied->reached())
    finish_oldest();
} catch (const std::exception&) {
  // The device has failed, too: cancel() ends what is left.
}

void StagedPipeline::finish_oldest() {
  Running& running = *pieces_.front().of;
  pieces_.pop_front();
  if (++running.finished < running.division.pieces) return;
  running.task.complete();
  tasks_.pop_front();
}

void StagedPipeline::cancel(const Error& cause) noexcept {
  for (const auto& piece : pieces_) await_end(piece.work);
  const auto deadline = Deadline::in(copies_bound);
  const bool copied_to_host = to_host_.await_idle(deadline);
  if (!to_device_.await_idle(deadline) || !copied_to_host)
    for (auto& slot : slots_) slot.abandon();
  pieces_.clear();
  for (const auto& each : std::exchange(tasks_, {})) each.task.fail(cause);
}

}  // namespace ddprun::comm
