#include "worker/trainer/session/hook_memory.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "worker/comm/collectives.h"

namespace ddprun::trainer {
namespace {

// Adds up in double: the mean of equal values has their bits.
void share_mean(const Span& span, bool own, int holders, ProcessGroup& group) {
  auto* const values = static_cast<float*>(span.data);
  std::vector<double> sums(span.count);
  if (own) std::copy_n(values, sums.size(), sums.begin());
  allreduce(group, sums);
  if (!own) std::ranges::transform(sums, values, [&](double sum) { return static_cast<float>(sum / holders); });
}

}  // namespace

HookMemory::Begun HookMemory::begin(std::vector<HookState> states, ProcessGroup& group) {
  states_.clear();
  if (states.empty()) return Begun::unchanged;
  const auto& values = chooses_undone_ ? undone_ : saved_;
  const bool own = fits(states, values);
  std::vector<std::int64_t> have(static_cast<std::size_t>(group.size()));
  have[static_cast<std::size_t>(group.rank())] = own ? 1 : 0;
  allreduce(group, have);
  const auto holders = static_cast<int>(std::ranges::count(have, 1));
  const auto first = static_cast<int>(std::ranges::find(have, 1) - have.begin());
  for (std::size_t i = 0; i < states.size() && holders > 0; ++i) {
    const Span& span = states[i].span;
    if (own) std::memcpy(span.data, values[i].bytes.data(), span.bytes());
    if (holders == group.size()) continue;
    if (span.dtype == DType::float32)
      share_mean(span, own, holders, group);
    else
      group.broadcast(span, first, {.blocking = true});
  }
  states_ = std::move(states);
  save();
  if (holders == 0) return Begun::anew;
  return holders == group.size() ? Begun::unchanged : Begun::mean;
}

bool HookMemory::fits(const std::vector<HookState>& states, const std::vector<Saved>& values) {
  return std::ranges::equal(states, values, [](const HookState& state, const Saved& saved) {
    return state.name == saved.name && state.span.bytes() == saved.bytes.size();
  });
}

void HookMemory::save_to(std::vector<Saved>& values) const {
  values.resize(states_.size());
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const Span& span = states_[i].span;
    values[i].name = states_[i].name;
    values[i].bytes.resize(span.bytes());
    std::memcpy(values[i].bytes.data(), span.data, span.bytes());
  }
}

void HookMemory::set(const std::vector<Saved>& values) {
  for (std::size_t i = 0; i < states_.size(); ++i)
    std::memcpy(states_[i].span.data, values[i].bytes.data(), values[i].bytes.size());
}

void HookMemory::save() {
  chooses_undone_ = false;
  save_to(saved_);
}

void HookMemory::undo() {
  save_to(undone_);
  set(saved_);
}

void HookMemory::redo() {
  set(undone_);
}

void HookMemory::end() {
  if (!states_.empty()) save();
  states_.clear();
}

void HookMemory::take(std::vector<HookState> states) {
  states_ = std::move(states);
  save();
  states_.clear();
}

void HookMemory::forget() {
  chooses_undone_ = false;
  saved_.clear();
}

}  // namespace ddprun::trainer
