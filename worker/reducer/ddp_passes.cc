#include "worker/reducer/ddp_passes.h"

#include <cstdint>
#include <utility>

#include "common/error.h"
#include "worker/comm/collectives.h"
#include "worker/reducer/model_sync.h"

namespace ddprun {

DdpPasses::DdpPasses(ProcessGroup& group, DdpModel& model, const std::vector<ParameterRef>& trained,
                     const ReducerOptions& options, bool broadcast_buffers)
    : group_(group), model_(model), broadcast_buffers_(broadcast_buffers), reducer_(group, trained, options) {}

DdpPasses::~DdpPasses() {
  try {
    await_buffers();
  } catch (const Error&) {
    // The group has failed; its other operations report that.
  }
}

void DdpPasses::begin_forward() {
  if (in_pass_) throw Error(Errc::usage, "the last backward pass ended with an error: its gradients are incomplete");
  if (!model_.trains()) return;
  if (join_ && no_sync_depth_ == 0) active_ = announce(true);
  begin_pass();
}

// A pass within join() learns which ranks have inputs if it reduces.
void DdpPasses::begin_pass() {
  const bool reduces = no_sync_depth_ == 0;
  if (broadcast_buffers_ && (join_ ? reduces : begins_step_)) copy_buffers();
  begins_step_ = reduces;
}

void DdpPasses::gradient_ready(std::size_t parameter) {
  if (no_sync_depth_ > 0) return reducer_.mark_used(parameter);
  if (!in_pass_) {
    in_pass_ = true;
    model_.at_end_of_backward([this] { end_backward(); });
  }
  reducer_.mark_ready(parameter);
}

void DdpPasses::end_backward() {
  model_.settle_gradients();
  reducer_.finalize();
  if (!reducer_.device_waits()) await_buffers();  // their broadcast began before the gradients
  model_.define_gradients();
  // From the average over all ranks to that over those with inputs.
  if (join_ && !join_->divide_by_initial_world_size && std::ssize(active_) < group_.size())
    model_.scale_gradients(static_cast<double>(group_.size()) / static_cast<double>(active_.size()));
  in_pass_ = false;
}

void DdpPasses::join_pass() {
  if (model_.trains()) begin_pass();
  join_backward();
}

void DdpPasses::join_backward() {
  if (no_sync_depth_ > 0) return;
  model_.settle_gradients();
  reducer_.join_pass();
  if (!reducer_.device_waits()) await_buffers();
  model_.define_gradients();
}

void DdpPasses::await_buffers() {
  if (const auto work = std::exchange(buffers_, nullptr)) work->wait();
}

// Copies from the first rank that has inputs: the others' are out of date. On a device the pass is queued behind them:
// should the broadcast be aborted, the gradients of the pass are, too, and nothing is updated (Reducer::finalize()).
// The host waits for them in that pass, or before the next copy if the device waits for the gradients, too.
void DdpPasses::copy_buffers() {
  const auto start = std::chrono::steady_clock::now();
  await_buffers();
  start_broadcast(group_, model_.common_buffers(), active_.empty() ? 0 : active_.front(), buffers_);
  waited_for_buffers_ += std::chrono::steady_clock::now() - start;
}

void DdpPasses::sync_buffers() {
  broadcast(group_, model_.common_buffers());
}

void DdpPasses::join(const std::function<void()>& body, const JoinOptions& options) {
  struct Scope {
    explicit Scope(DdpPasses& of, const JoinOptions& with) : passes(of) { passes.join_ = &with; }
    ~Scope() {
      passes.join_ = nullptr;
      passes.active_.clear();
    }
    DdpPasses& passes;
  };
  const Scope scope(*this, options);
  body();
  int last = 0;  // a rank that took part in the last pass with inputs
  for (;;) {
    if (!active_.empty()) last = active_.front();
    active_ = announce(false);
    if (active_.empty()) break;
    model_.zero_grad();
    join_pass();
  }
  auto everything = model_.common_parameters();
  for (auto& buffer : model_.common_buffers()) everything.push_back(std::move(buffer));
  broadcast(group_, everything, last);
  begins_step_ = true;
}

// Returns the ranks that have inputs for the next pass. Every rank calls it before each pass.
std::vector<int> DdpPasses::announce(bool has_inputs) {
  std::vector<std::int64_t> flags(static_cast<std::size_t>(group_.size()));
  flags[static_cast<std::size_t>(group_.rank())] = has_inputs ? 1 : 0;
  allreduce(group_, flags);
  std::vector<int> ranks;
  for (int r = 0; r < group_.size(); ++r)
    if (flags[static_cast<std::size_t>(r)] != 0) ranks.push_back(r);
  if (join_->throw_on_early_termination && !ranks.empty() && std::ssize(ranks) < group_.size())
    throw make_error(Errc::usage, "{} of {} ranks have no more inputs (throw_on_early_termination)",
                     group_.size() - std::ssize(ranks), group_.size());
  return ranks;
}

}  // namespace ddprun
