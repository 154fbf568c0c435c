#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <vector>

#include "worker/optim/clip.h"
#include "worker/tensor/kernels.h"
#include "worker/tensor/memory_owner.h"
#include "worker/trainer/session/gradient_rules.h"

namespace ddprun::trainer {
namespace {

using kernels::StepState;

StepState state_of(const TrainState& state) {
  StepState result;
  if (state.scaler) {
    result.loss_scale = state.scaler->state().scale;
    result.good_steps = static_cast<double>(state.scaler->state().good_steps);
  }
  if (state.outliers) {
    const auto& norms = state.outliers->norms();
    std::ranges::copy(norms, result.norms);
    result.norms_seen = static_cast<double>(norms.size());
    result.lower_median = result.upper_median = state.outliers->median();
  }
  return result;
}

// Returns the last norms, the oldest first.
std::vector<double> norms_of(const StepState& state) {
  const auto seen = static_cast<std::int64_t>(state.norms_seen);
  std::vector<double> norms;
  for (auto n = std::max<std::int64_t>(seen - kernels::norm_window, 0); n < seen; ++n)
    norms.push_back(state.norms[n % kernels::norm_window]);
  return norms;
}

template <class T>
const T* at(const Tensor& tensor) {
  return tensor.defined() ? static_cast<const T*>(tensor.raw()) : nullptr;
}

// What the device decides by: the state of loss scale and outliers, which it keeps, and the decision.
class Decision {
 public:
  Decision(const TrainState& state, Device device)
      : rules_{.has_loss_scale = state.scaler.has_value(),
               .loss_scale = state.scaler ? state.scaler->rule() : kernels::LossScaleRule{},
               .outlier_factor = state.outliers ? state.outliers->factor() : 0},
        on_host_(Tensor::empty_pinned({kernels::step_state_size}, DType::float64)) {
    const MemoryScope scope(MemoryOwner::optimizer);
    const StepState start = state_of(state);
    Tensor numbers = Tensor::empty({kernels::step_state_size}, DType::float64);
    std::memcpy(numbers.raw(), &start, sizeof(start));
    state_ = numbers.to(device);
    loss_scale_ = Tensor::full({}, start.loss_scale, DType::float32, device);
    skip_ = Tensor::zeros({1}, DType::float32, device);
  }

  const Tensor& skip() const { return skip_; }
  const Tensor& loss_scale() const { return loss_scale_; }  // as the loss is multiplied by it
  Tensor wide_loss_scale() const { return number(offsetof(StepState, loss_scale)); }
  Tensor made() const { return number(offsetof(StepState, made)); }
  Tensor left_out() const { return number(offsetof(StepState, left_out)); }

  void decide(const kernels::StepFindings& found) {
    kernels::of(state_).decide_step(rules_, found, state_, loss_scale_, skip_);
  }

  void copy_to_host(const LateValues& late) { late.copy(state_, on_host_); }
  // Returns the state that was copied before the last wait.
  StepState on_host() const {
    StepState result;
    std::memcpy(&result, on_host_.raw(), sizeof(result));
    return result;
  }

 private:
  Tensor number(std::size_t offset) const {
    return state_.slice(0, static_cast<std::int64_t>(offset / sizeof(double)), 1).reshape({});
  }

  const kernels::StepRules rules_;
  Tensor state_, loss_scale_, skip_, on_host_;
};

class DeviceRules final : public GradientRules, public LateReader {
 public:
  DeviceRules(const RuleContext& context, Device device)
      : in_(context),
        device_(device),
        skips_(in_.state.scaler || in_.state.outliers),
        device_decides_(in_.state.optimizer->can_skip() && is_sole_device()) {
    in_.values.add_reader(in_.gate);  // before what follows an update that was cancelled is used
    if (skips_) in_.values.add_reader(this);
    if (!skips_ && in_.gate != nullptr) let_skip(in_.gate->cancelled(), {}, {});
  }
  ~DeviceRules() override {
    let_skip({}, {}, {});
    if (in_.state.scaler) in_.state.scaler->keep_on_device({});
  }

  // A checkpoint may have been restored before the first step.
  void begin_step() override {
    if (!skips_ || decision_) return;
    decision_.emplace(in_.state, device_);
    if (!device_decides_) return;
    let_skip(decision_->skip(), decision_->left_out(), decision_->made());
    if (in_.state.scaler) in_.state.scaler->keep_on_device(decision_->loss_scale());
  }

  void examine(StepResult&) override {
    auto& late = in_.values.late();
    auto& numbers = in_.values.findings();
    const auto& parameters = in_.divided.parameters();
    not_finite_ = square_sum_ = clipped_square_sum_ = {};
    if (in_.state.scaler) {
      numbers.loss_scale = late.add(decision_->loss_scale());
      not_finite_ = optim::unscale_there(parameters, decision_->wide_loss_scale());
    }
    if (in_.state.outliers) {
      square_sum_ = optim::grad_square_sum_there(parameters);
      numbers.square_sum = late.add(square_sum_);
    }
    if (in_.config.clip_value > 0) optim::clip_grad_value(parameters, in_.config.clip_value);
    if (in_.config.clip_norm > 0) {
      clipped_square_sum_ = optim::grad_square_sum_there(parameters);
      numbers.clipped_square_sum = late.add(clipped_square_sum_);
    }
  }

  bool apply(StepResult&) override {
    if (clipped_square_sum_.defined())
      optim::clip_grads_with_square_sum(in_.divided.parameters(), in_.config.clip_norm, clipped_square_sum_);
    if (!skips_) return true;
    decision_->decide({.cancelled = in_.gate ? at<float>(in_.gate->cancelled()) : nullptr,
                       .not_finite = at<float>(not_finite_),
                       .square_sum = at<double>(square_sum_)});
    in_.values.findings().skipped = in_.values.late().add(decision_->skip());
    if (device_decides_) return true;
    in_.values.wait();
    return !skipped_;
  }

  bool reads_each_step() const override { return skips_ && !device_decides_; }

  void copy_to_host(LateValues& late) override { decision_->copy_to_host(late); }
  void read(const LateValues&) override {
    const StepState known = decision_->on_host();
    auto& state = in_.state;
    if (state.scaler) state.scaler->set_state({known.loss_scale, static_cast<std::int64_t>(known.good_steps)});
    if (state.outliers) state.outliers->set_norms(norms_of(known));
    skipped_ = known.skipped != 0;
    if (device_decides_) take_counts(known);
  }

 private:
  bool is_sole_device() const {
    return std::ranges::all_of(in_.divided.parameters(),
                               [&](const auto& each) { return each.second.value().device() == device_; });
  }

  void let_skip(const Tensor& flag, const Tensor& left_out, const Tensor& made) {
    if (in_.state.optimizer->can_skip()) in_.state.optimizer->skip_if(flag, left_out);
    if (in_.state.ema) in_.state.ema->skip_if(flag, made);
  }

  // The host has counted the steps that the device left out, too.
  void take_counts(const StepState& known) {
    auto& optimizer = *in_.state.optimizer;
    if (known.left_out > 0) {
      optimizer.set_step_count(optimizer.step_count() - static_cast<std::int64_t>(known.left_out));
      decision_->left_out().fill(0);
    }
    if (in_.state.ema && known.made > 0) in_.state.ema->set_started();
  }

  const RuleContext in_;
  const Device device_;
  const bool skips_;           // a rule may skip a step
  const bool device_decides_;  // the optimizer's kernels read the decision, and the host need not
  std::optional<Decision> decision_;
  Tensor not_finite_, square_sum_, clipped_square_sum_;  // those of the step in progress
  bool skipped_ = false;                                 // the last step that the host knows of was
};

}  // namespace

std::unique_ptr<GradientRules> make_device_rules(const RuleContext& context, Device device) {
  return std::make_unique<DeviceRules>(context, device);
}

}  // namespace ddprun::trainer
