#include "worker/trainer/recovery/part_copies.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "common/error.h"
#include "common/host_port.h"
#include "worker/checkpoint/run_state.h"
#include "worker/comm/collectives.h"
#include "worker/comm/pending_work.h"
#include "worker/optim/offload.h"
#include "worker/parallel/sharding/part_numbers.h"
#include "worker/parallel/sharding/redistribute.h"
#include "worker/parallel/stored/placements_json.h"
#include "worker/trainer/recovery/state_copy.h"

namespace ddprun::trainer {
namespace {

constexpr int copy_tag = 2;

// An update that has changed the optimizer's state, and not all of the run's, was interrupted.
bool is_between_steps(const TrainState& state) {
  return state.optimizer->step_count() == state.run.step - state.run.skipped_steps;
}

Span span_of(Tensor bytes) {
  return {bytes.raw(), bytes.bytes(), DType::uint8};
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
void exchange(ProcessGroup& group, const Tensor& out, int to, const Tensor& in, int from) {
  PendingWork received, sent;
  if (in.bytes() > 0) received.start(group.recv(span_of(in), from, copy_tag));
  if (out.bytes() > 0) sent.start(group.send(span_of(out), to, copy_tag));
  sent.wait();
  received.wait();
}

}  // namespace

std::size_t PartCopies::Layout::bytes_of(int rank) const {
  std::size_t bytes = 0;
  for (const auto& tensor : tensors) bytes += static_cast<std::size_t>(tensor.local_bytes(rank));
  return bytes;
}

void PartCopies::begin(Session& session, bool has_state) {
  ProcessGroup& group = session.group();
  auto parts = session.parts();
  if (!parts) throw Error(Errc::internal, "the session does not say which parts of the state its ranks have");
  auto tensors = all_tensors(*parts);
  auto numbers = sharding::part_numbers(tensors, group.size());
  const Layout layout{
      .tensors = std::move(tensors), .parts = std::move(numbers), .moves = session_ ? layout_->moves + 1 : 0};
  const int rank = group.rank();
  std::size_t bytes = 0;
  for (const Tensor& part : present_parts(*parts)) bytes += part.bytes();
  if (bytes != layout.bytes_of(rank))
    throw make_error(Errc::internal, "rank {} has {} bytes of the state, its placements say {}", rank, bytes,
                     layout.bytes_of(rank));
  const auto neighbours = neighbours_of(rank, all_gather_bytes(group, local_host_name()));
  std::vector<std::int64_t> own_state_bytes(static_cast<std::size_t>(group.size()));
  for (const HookState& own : session.own_state())
    own_state_bytes[static_cast<std::size_t>(rank)] += static_cast<std::int64_t>(own.span.bytes());
  allreduce(group, own_state_bytes);
  session_ = &session;
  has_state_ = has_state;
  state_.reset();
  state_.emplace(std::move(*parts));
  layout_ = std::make_shared<const Layout>(layout);
  neighbours_ = neighbours;
  own_state_bytes_ = std::move(own_state_bytes);
}

std::vector<Tensor> PartCopies::present_parts(const StateParts& state) {
  auto all = parts_by_tensor(state);
  std::erase_if(all, [](const Tensor& tensor) { return !tensor.defined() || tensor.bytes() == 0; });
  return all;
}

Tensor PartCopies::make_memory(std::size_t bytes) const {
  const Shape shape{static_cast<std::int64_t>(bytes)};
  return folder_.empty() ? Tensor::empty(shape, DType::uint8) : optim::zeros_in_file(shape, DType::uint8, folder_);
}

Tensor PartCopies::take_memory(std::size_t bytes) {
  const auto found = std::ranges::find(spare_, bytes, &Tensor::bytes);
  if (found == spare_.end()) {
    if (!spare_.empty()) spare_.pop_back();  // that of another layout
    return make_memory(bytes);
  }
  Tensor memory = std::move(*found);
  spare_.erase(found);
  return memory;
}

// Returns a copy of a rank's parts of the state as it is now. The memory has them, or will have them.
PartCopies::Copy PartCopies::copy_with(Tensor memory, int rank, bool applied) const {
  const TrainState& state = session_->state();
  return {.held = {.step = state.run.step, .part = layout_->part_of(rank), .applied = applied},
          .layout = layout_,
          .run = checkpoint::to_json(state.run),
          .has_averages = state.ema && state.ema->started(),
          .bytes = std::move(memory)};
}

// Returns the size of a copy of the parts of a rank and of its own state.
std::size_t PartCopies::kept_bytes(int rank) const {
  return layout_->bytes_of(rank) + static_cast<std::size_t>(own_state_bytes_.at(static_cast<std::size_t>(rank)));
}

// Copies this rank's parts. Returns where they end.
std::byte* PartCopies::pack(Tensor& bytes) const {
  auto* next = static_cast<std::byte*>(bytes.raw());
  for (const Tensor& tensor : own_parts()) {
    std::memcpy(next, tensor.raw(), tensor.bytes());
    next += tensor.bytes();
  }
  return next;
}

PartCopies::Cost PartCopies::keep(double steps) {
  const auto start = std::chrono::steady_clock::now();
  ProcessGroup& group = session_->group();
  const auto copy_for = [&](int rank) { return copy_with(take_memory(kept_bytes(rank)), rank, false); };
  Copy own = copy_for(group.rank()), other = copy_for(neighbours_.kept);
  std::byte* next = pack(own.bytes);
  for (const HookState& state : session_->own_state()) {
    std::memcpy(next, state.span.data, state.span.bytes());
    next += state.span.bytes();
  }
  exchange(group, own.bytes, neighbours_.keeper, other.bytes, neighbours_.kept);
  auto earlier = std::exchange(copies_, {});
  copies_.push_back(std::move(own));
  copies_.push_back(std::move(other));
  for (Copy& each : earlier) copies_.push_back(std::move(each));
  std::vector<double> seconds{std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), steps};
  allreduce(group, seconds, ReduceOp::max);
  drop_earlier(2);
  for (Copy& each : copies_) each.is_complete = true;
  return {.copying = seconds[0], .steps = seconds[1]};
}

// The rank that gets a part has applied the same steps, so none is repeated.
void PartCopies::hand_over(const std::vector<bool>& stays) {
  ProcessGroup& group = session_->group();
  const auto heirs = heirs_of(layout_->parts, stays);
  const int own = group.rank();
  std::deque<Copy> inherited;
  Tensor given;
  std::deque<PendingWork> transfers;
  for (int rank = 0; rank < group.size(); ++rank) {
    const int heir = heirs[static_cast<std::size_t>(rank)];
    const auto bytes = layout_->bytes_of(rank);
    if (heir == own) {
      Copy& copy = inherited.emplace_back(copy_with(make_memory(bytes), rank, true));
      if (bytes > 0) transfers.emplace_back().start(group.recv(span_of(copy.bytes), rank, copy_tag));
    } else if (rank == own && heir >= 0 && bytes > 0) {
      given = make_memory(bytes);
      pack(given);
      transfers.emplace_back().start(group.send(span_of(given), heir, copy_tag));
    }
  }
  for (auto& each : transfers) each.wait();
  std::erase_if(copies_, [](const Copy& each) { return each.held.applied; });  // those of an earlier call
  std::ranges::move(inherited, std::back_inserter(copies_));
}

bool PartCopies::has_sole_parts() const {
  const auto& parts = layout_->parts;
  return std::ranges::any_of(parts, [&](int part) { return std::ranges::count(parts, part) == 1; });
}

// Keeps as much of their memory as the next copies take.
void PartCopies::drop_earlier(std::size_t newest) {
  const auto first = copies_.begin() + static_cast<std::ptrdiff_t>(newest);
  for (auto each = first; each != copies_.end() && spare_.size() < newest; ++each)
    spare_.push_back(std::move(each->bytes));
  copies_.erase(first, copies_.end());
}

void PartCopies::begin_anew() {
  has_state_ = true;
  copies_.clear();
}

void PartCopies::set_aside(StepBackup& backup) {
  if (!session_) return;
  if (has_state_) {
    reached_ = session_->state().run.step;
    if (is_between_steps(session_->state())) set_aside_applied(false);
    if (session_->can_end_step()) end_step(backup);
  }
  session_ = nullptr;
  state_.reset();
}

void PartCopies::set_aside_applied(bool ready) {
  const int rank = session_->group().rank();
  copies_.push_back(copy_with(make_memory(layout_->bytes_of(rank)), rank, true));
  copies_.back().held.ready = ready;
  pack(copies_.back().bytes);
}

// The state of the session is not used any more, except for the run's position.
void PartCopies::end_step(StepBackup& backup) {
  TrainState& state = session_->state();
  const auto before = state.run;
  backup.redo_step();
  const auto [result, stands] = session_->end_step();
  set_aside_applied(!stands);
  if (stands) {
    reached_ = state.run.step;
    backup.end_step(result);
  } else {
    state.run = before;
    backup.undo_step();
  }
}

Holdings PartCopies::holdings() const {
  Holdings result{.parts = {}, .held = {}, .reached = reached_};
  for (const Copy& copy : copies_) {
    const Layout& layout = *copy.layout;
    const auto is_of = [&](const Holdings& each) { return each.parts == layout.parts && each.moves == layout.moves; };
    if (result.parts.empty()) {
      result.parts = layout.parts;
      result.moves = layout.moves;
    }
    Holdings* own = &result;
    if (!is_of(result)) {
      const auto found = std::ranges::find_if(result.earlier, is_of);
      own = found == result.earlier.end()
                ? &result.earlier.emplace_back(Holdings{.parts = layout.parts, .moves = layout.moves})
                : &*found;
    }
    own->held.push_back(copy.held);
    if (copy.is_complete) own->confirmed = std::max(own->confirmed, copy.held.step);
  }
  return result;
}

// Returns the copy of a part, or of any, of the state that the catch-up names.
const PartCopies::Copy& PartCopies::find(const Catchup& catchup, std::optional<int> part) const {
  const auto ranks = catchup.holders.empty() ? catchup.sources.size() : catchup.holders.size();
  const auto found = std::ranges::find_if(copies_, [&](const Copy& each) {
    return each.layout->parts.size() == ranks && each.layout->moves == catchup.moves &&
           each.held.step == catchup.step && each.held.applied == (catchup.from == StateSource::applied) &&
           (!part || each.held.part == *part);
  });
  if (found == copies_.end())
    throw make_error(Errc::internal, "this rank has no copy of part {} of {} after step {}, as it has told the others",
                     part.value_or(-1), ranks, catchup.step);
  return *found;
}

// Gives the parts their values. Returns where those end.
const std::byte* PartCopies::unpack(const Tensor& bytes) const {
  const auto* next = static_cast<const std::byte*>(bytes.raw());
  for (Tensor& tensor : own_parts()) {
    std::memcpy(tensor.raw(), next, tensor.bytes());
    tensor.storage()->bump_version();
    next += tensor.bytes();
  }
  return next;
}

// The group has the layout of the copies. What a hook keeps is that of the copies, too, or stays as it was at the step.
void PartCopies::exchange_parts(StepBackup& backup, const Catchup& catchup) const {
  const bool kept = catchup.from == StateSource::copies;
  const auto bytes_of = [&](int rank) { return kept ? kept_bytes(rank) : layout_->bytes_of(rank); };
  ProcessGroup& group = session_->group();
  const auto bytes_for = [&](int rank) -> const Tensor& { return find(catchup, layout_->part_of(rank)).bytes; };
  const int own = group.rank(), source = catchup.sources.at(static_cast<std::size_t>(own));
  const Tensor received = make_memory(source == own ? 0 : bytes_of(own));
  PendingWork receives;
  if (received.bytes() > 0) receives.start(group.recv(span_of(received), source, copy_tag));
  std::deque<PendingWork> sends;
  for (const int rank : catchup.lagging)
    if (catchup.sources[static_cast<std::size_t>(rank)] == own && bytes_of(rank) > 0)
      sends.emplace_back().start(group.send(span_of(bytes_for(rank)), rank, copy_tag));
  receives.wait();
  const std::byte* next = unpack(source == own ? bytes_for(own) : received);
  if (kept) {
    for (const HookState& state : session_->own_state()) {
      std::memcpy(state.span.data, next, state.span.bytes());
      next += state.span.bytes();
    }
    backup.take_hook(*session_);
  }
  for (auto& send : sends) send.wait();
}

// Returns the layout of the copies, which ranks that were not in that group do not know. Collective.
PartCopies::Layout PartCopies::layout_before(const Catchup& catchup) const {
  ProcessGroup& group = session_->group();
  const auto ranks = static_cast<int>(catchup.holders.size());
  std::string text;
  if (group.rank() == catchup.source) {
    stored::StoredState placements(ranks, false);
    placements.of(stored::Kind::model) = stored::WriterChoice(ranks).choose(find(catchup).layout->tensors);
    text = stored::to_json(placements);
  }
  text = broadcast_bytes(group, std::move(text), catchup.source);
  const auto placements = stored::stored_state_from_json(text, "the layout of rank " + std::to_string(catchup.source));
  Layout layout{.tensors = placements.of(stored::Kind::model).tensors, .parts = {}};
  layout.parts = sharding::part_numbers(layout.tensors, ranks);
  return layout;
}

// The group before had another size, or its layers had moved. Copies are like files of its ranks.
void PartCopies::redistribute_parts(const Catchup& catchup) const {
  const Layout before = layout_before(catchup);
  if (before.tensors.size() != layout_->tensors.size())
    throw make_error(Errc::internal, "the copies are of {} tensors, the state has {}", before.tensors.size(),
                     layout_->tensors.size());
  // By name, the places in the layout before, which may have another order: that of a parameter, then of its average.
  std::map<std::string_view, std::deque<std::size_t>> places;
  for (std::size_t i = 0; i < before.tensors.size(); ++i) places[before.tensors[i].spec().name].push_back(i);
  std::vector<std::size_t> place_of;  // by tensor
  sharding::Redistribution moves;
  moves.files.emplace();
  for (const auto& tensor : layout_->tensors) {
    auto& found = places[tensor.spec().name];
    if (found.empty()) throw make_error(Errc::internal, "there is no copy of {}", tensor.spec().name);
    place_of.push_back(found.front());
    found.pop_front();
    moves.tensors.push_back(tensor.spec());
    moves.from.placements.push_back(before.tensors[place_of.back()].placement());
    moves.to.placements.push_back(tensor.placement());
  }
  moves.from.processes.assign(before.parts.size(), sharding::absent);
  moves.files->placements = moves.from.placements;
  moves.files->processes = catchup.holders;
  const auto read = [&](const sharding::Transfer& transfer, Span into) {
    const Copy& copy = find(catchup, before.part_of(transfer.file));
    std::size_t offset = static_cast<std::size_t>(transfer.read_offset) * size_of(into.dtype);
    for (std::size_t i = 0; i < place_of[transfer.tensor]; ++i)
      offset += static_cast<std::size_t>(before.tensors[i].local_bytes(transfer.file));
    std::memcpy(into.data, static_cast<const std::byte*>(copy.bytes.raw()) + offset, into.bytes());
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
    const Copy& copy = find(catchup);
    run = (copy.has_averages ? "1" : "0") + copy.run;
  }
  run = broadcast_bytes(group, std::move(run), catchup.source);
  state.continue_from(
      checkpoint::run_state_from_json(run.substr(1), "the state of rank " + std::to_string(catchup.source)));
  if (run[0] == '1') state.ema->set_started();
}

void PartCopies::restore(StepBackup& backup, const Catchup& catchup) {
  ProcessGroup& group = session_->group();
  const bool was_ready =
      std::ranges::any_of(copies_, [&](const Copy& each) { return each.held.step == catchup.step && each.held.ready; });
  if (catchup.from == StateSource::copies || (reached_ != catchup.step && !was_ready))
    backup.forget_hook();
  else
    backup.choose_hook(was_ready);
  catchup.holders.empty() ? exchange_parts(backup, catchup) : redistribute_parts(catchup);
  restore_run(catchup);
  session_->parts_restored();
  if (catchup.from == StateSource::applied)
    copy_last_step(backup, group, catchup.source);
  else
    backup.set_last(std::nullopt);
  group.barrier({.blocking = true});  // until then a rank may need what others hold
  has_state_ = true;
  std::erase_if(copies_, [](const Copy& each) { return each.held.applied; });
}

}  // namespace ddprun::trainer
