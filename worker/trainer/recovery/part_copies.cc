#include "worker/trainer/recovery/part_copies.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "common/error.h"
#include "common/host_port.h"
#include "worker/checkpoint/run_state.h"
#include "worker/comm/collectives.h"
#include "worker/parallel/sharding/part_numbers.h"
#include "worker/parallel/sharding/redistribute.h"
#include "worker/trainer/recovery/state_copy.h"

namespace ddprun::trainer {
namespace {

using Bytes = std::vector<std::byte>;

constexpr int copy_tag = 2;

// An update that has changed the optimizer's state, and not all of the run's, was interrupted.
bool is_between_steps(const TrainState& state) {
  return state.optimizer->step_count() == state.run.step - state.run.skipped_steps;
}

Span span_of(Bytes& bytes) {
  return {bytes.data(), bytes.size(), DType::uint8};
}

ConstSpan span_of(const Bytes& bytes) {
  return {bytes.data(), bytes.size(), DType::uint8};
}

std::vector<sharding::PlacedTensor> all_tensors(const StateParts& state) {
  std::vector<sharding::PlacedTensor> all;
  for (const auto* part : {&state.model, &state.optimizer, &state.averages})
    all.insert(all.end(), part->tensors().begin(), part->tensors().end());
  return all;
}

// Returns this rank's part of each tensor.
std::vector<Tensor> parts_by_tensor(const StateParts& state) {
  std::vector<Tensor> all;
  for (const auto* part : {&state.model, &state.optimizer, &state.averages})
    all.insert(all.end(), part->own().begin(), part->own().end());
  return all;
}

// Sends and receives at once; nothing travels where there is nothing.
void exchange(ProcessGroup& group, const Bytes& out, int to, Bytes& in, int from) {
  const WorkPtr received = in.empty() ? nullptr : group.recv(span_of(in), from, copy_tag);
  const WorkPtr sent = out.empty() ? nullptr : group.send(span_of(out), to, copy_tag);
  if (sent) sent->wait();
  if (received) received->wait();
}

}  // namespace

std::size_t PartCopies::Layout::bytes_of(int rank) const {
  std::size_t bytes = 0;
  for (const auto& tensor : tensors) bytes += static_cast<std::size_t>(tensor.local_bytes(rank));
  return bytes;
}

void PartCopies::begin(Session& session, bool has_state) {
  auto parts = session.parts();
  if (!parts) throw Error(Errc::internal, "the session does not say which parts of the state its ranks have");
  state_.reset();
  state_.emplace(std::move(*parts));
  layout_.tensors = all_tensors(*state_);
  layout_.parts = sharding::part_numbers(layout_.tensors, session.group().size());
  const int rank = session.group().rank();
  std::size_t bytes = 0;
  for (const Tensor& part : own_parts()) bytes += part.bytes();
  if (bytes != layout_.bytes_of(rank))
    throw make_error(Errc::internal, "rank {} has {} bytes of the state, its placements say {}", rank, bytes,
                     layout_.bytes_of(rank));
  session_ = &session;
  has_state_ = has_state;
  neighbours_ = neighbours_of(session.group().rank(), all_gather_bytes(session.group(), local_host_name()));
}

std::vector<Tensor> PartCopies::own_parts() const {
  auto all = parts_by_tensor(*state_);
  std::erase_if(all, [](const Tensor& tensor) { return !tensor.defined() || tensor.bytes() == 0; });
  return all;
}

Bytes PartCopies::take_memory(std::size_t bytes) {
  Bytes memory;
  if (!spare_.empty()) {
    memory = std::move(spare_.back());
    spare_.pop_back();
  }
  memory.resize(bytes);
  return memory;
}

// memory: of as many bytes as this rank's parts.
PartCopies::Copy PartCopies::copy_of_own(bool applied, Bytes memory) const {
  const TrainState& state = session_->state();
  std::byte* next = memory.data();
  for (const Tensor& tensor : own_parts()) {
    std::memcpy(next, tensor.raw(), tensor.bytes());
    next += tensor.bytes();
  }
  return {.held = {.step = state.run.step, .part = layout_.part_of(session_->group().rank()), .applied = applied},
          .run = checkpoint::to_json(state.run),
          .has_averages = state.ema && state.ema->started(),
          .bytes = std::move(memory)};
}

PartCopies::Cost PartCopies::keep(double steps) {
  const auto start = std::chrono::steady_clock::now();
  ProcessGroup& group = session_->group();
  Copy own = copy_of_own(false, take_memory(layout_.bytes_of(group.rank())));
  Copy other = {.held = own.held,
                .run = own.run,
                .has_averages = own.has_averages,
                .bytes = take_memory(layout_.bytes_of(neighbours_.kept))};
  other.held.part = layout_.part_of(neighbours_.kept);
  exchange(group, own.bytes, neighbours_.keeper, other.bytes, neighbours_.kept);
  if (layout_of_copies_.parts != layout_.parts) clear();
  layout_of_copies_ = layout_;
  auto earlier = std::exchange(copies_, {});
  copies_.push_back(std::move(own));
  copies_.push_back(std::move(other));
  for (Copy& each : earlier) copies_.push_back(std::move(each));
  std::vector<double> seconds{std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), steps};
  allreduce(group, seconds, ReduceOp::max);
  confirmed_ = copies_.front().held.step;
  for (auto each = copies_.begin() + 2; each != copies_.end(); ++each) spare_.push_back(std::move(each->bytes));
  copies_.resize(2);
  return {.copying = seconds[0], .steps = seconds[1]};
}

void PartCopies::clear() {
  copies_.clear();
  confirmed_ = -1;
}

void PartCopies::set_aside() {
  if (!session_) return;
  const TrainState& state = session_->state();
  if (has_state_) {
    reached_ = state.run.step;
    if (layout_of_copies_.parts != layout_.parts) clear();
    layout_of_copies_ = layout_;
    if (is_between_steps(state))
      copies_.push_back(copy_of_own(true, Bytes(layout_.bytes_of(session_->group().rank()))));
  }
  session_ = nullptr;
  state_.reset();
}

Holdings PartCopies::holdings() const {
  Holdings result{.parts = layout_of_copies_.parts, .held = {}, .reached = reached_, .confirmed = confirmed_};
  for (const Copy& copy : copies_) result.held.push_back(copy.held);
  return result;
}

const PartCopies::Copy* PartCopies::find(const HeldPart& held) const {
  const auto found = std::ranges::find(copies_, held, &Copy::held);
  return found == copies_.end() ? nullptr : &*found;
}

void PartCopies::unpack(const Bytes& bytes) const {
  const std::byte* next = bytes.data();
  for (Tensor& tensor : own_parts()) {
    std::memcpy(tensor.raw(), next, tensor.bytes());
    tensor.storage()->bump_version();
    next += tensor.bytes();
  }
}

// The group has the layout of the copies.
void PartCopies::exchange_parts(const Catchup& catchup) const {
  ProcessGroup& group = session_->group();
  const bool applied = catchup.from == StateSource::applied;
  const auto held_for = [&](int rank) {
    return find({.step = catchup.step, .part = layout_.part_of(rank), .applied = applied});
  };
  const int own = group.rank(), source = catchup.sources.at(static_cast<std::size_t>(own));
  Bytes received(source == own ? 0 : layout_.bytes_of(own));
  const WorkPtr receives = received.empty() ? nullptr : group.recv(span_of(received), source, copy_tag);
  std::vector<WorkPtr> sends;
  for (const int rank : catchup.lagging)
    if (catchup.sources[static_cast<std::size_t>(rank)] == own && layout_.bytes_of(rank) > 0)
      sends.push_back(group.send(span_of(held_for(rank)->bytes), rank, copy_tag));
  if (source == own) unpack(held_for(own)->bytes);
  if (receives) receives->wait();
  if (source != own) unpack(received);
  for (const auto& send : sends) send->wait();
}

// The group before had another size. Copies are like files of its ranks.
void PartCopies::redistribute_parts(const Catchup& catchup) const {
  const bool applied = catchup.from == StateSource::applied;
  const auto& before = layout_of_copies_;
  sharding::Redistribution moves;
  moves.files.emplace();
  for (std::size_t i = 0; i < layout_.tensors.size(); ++i) {
    if (before.tensors.at(i).spec().name != layout_.tensors[i].spec().name)
      throw make_error(Errc::internal, "the copies of {} are not of {}", before.tensors[i].spec().name,
                       layout_.tensors[i].spec().name);
    moves.tensors.push_back(layout_.tensors[i].spec());
    moves.from.placements.push_back(before.tensors[i].placement());
    moves.to.placements.push_back(layout_.tensors[i].placement());
  }
  moves.from.processes.assign(before.parts.size(), sharding::absent);
  moves.files->placements = moves.from.placements;
  moves.files->processes = catchup.holders;
  const auto read = [&](const sharding::Transfer& transfer, Span into) {
    const auto* copy = find({.step = catchup.step, .part = before.part_of(transfer.file), .applied = applied});
    std::size_t offset = static_cast<std::size_t>(transfer.read_offset) * size_of(into.dtype);
    for (std::size_t i = 0; i < transfer.tensor; ++i)
      offset += static_cast<std::size_t>(before.tensors[i].local_bytes(transfer.file));
    std::memcpy(into.data, copy->bytes.data() + offset, into.bytes());
  };
  std::vector<ConstSpan> none;
  std::vector<Span> own;
  const auto parts = parts_by_tensor(*state_);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const DType dtype = moves.tensors[i].dtype;
    none.push_back({.dtype = dtype});
    Tensor part = parts[i];
    own.push_back(part.defined() ? Span{part.raw(), static_cast<std::size_t>(part.numel()), dtype}
                                 : Span{.dtype = dtype});
  }
  ProcessGroup& group = session_->group();
  sharding::redistribute(moves, sharding::plan_redistribution(moves, group.rank()), none, own, group, read);
  for (const Tensor& part : own_parts()) part.storage()->bump_version();
}

void PartCopies::restore_run(const Catchup& catchup) const {
  ProcessGroup& group = session_->group();
  TrainState& state = session_->state();
  std::string run;
  if (group.rank() == catchup.source) {
    const bool applied = catchup.from == StateSource::applied;
    const auto first = std::ranges::find_if(
        copies_, [&](const Copy& each) { return each.held.step == catchup.step && each.held.applied == applied; });
    run = (first->has_averages ? "1" : "0") + first->run;
  }
  run = broadcast_bytes(group, std::move(run), catchup.source);
  state.continue_from(
      checkpoint::run_state_from_json(run.substr(1), "the state of rank " + std::to_string(catchup.source)));
  if (run[0] == '1') state.ema->set_started();
}

void PartCopies::restore(StepBackup& backup, const Catchup& catchup) {
  ProcessGroup& group = session_->group();
  catchup.holders.empty() ? exchange_parts(catchup) : redistribute_parts(catchup);
  restore_run(catchup);
  session_->parts_restored();
  if (catchup.from == StateSource::applied)
    copy_last_step(backup, group, catchup.source);
  else
    backup.set_last(std::nullopt);
  has_state_ = true;
  group.barrier({.blocking = true});  // until then a rank may need what others hold
  std::erase_if(copies_, [](const Copy& each) { return each.held.applied; });
}

}  // namespace ddprun::trainer
