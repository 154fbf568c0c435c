#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <ranges>
#include <vector>

#include "worker/optim/clip.h"
#include "worker/optim/step_flags.h"
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

// Holds the memory that devices decide by: the first one has the state of loss scale and outliers and decides, and each
// has a copy of the state and the decision.
class Decision {
 public:
  Decision(const TrainState& state, const std::vector<Device>& devices)
      : rules_{.has_loss_scale = state.scaler.has_value(),
               .loss_scale = state.scaler ? state.scaler->rule() : kernels::LossScaleRule{},
               .outlier_factor = state.outliers ? state.outliers->factor() : 0},
        on_host_(Tensor::empty_pinned({kernels::step_state_size}, DType::float64)) {
    const MemoryScope scope(MemoryOwner::optimizer);
    const StepState start = state_of(state);
    Tensor numbers = Tensor::empty({kernels::step_state_size}, DType::float64);
    std::memcpy(numbers.raw(), &start, sizeof(start));
    for (const Device device : devices)
      copies_.push_back({.state = numbers.to(device),
                         .loss_scale = Tensor::full({}, start.loss_scale, DType::float32, device),
                         .skip = Tensor::zeros({1}, DType::float32, device)});
  }

  // These return those of the first device.
  const Tensor& skip() const { return copies_[0].skip; }
  const Tensor& loss_scale() const { return copies_[0].loss_scale; }  // by which losses are multiplied
  Tensor wide_loss_scale() const { return copies_[0].number(offsetof(StepState, loss_scale)); }

  std::vector<Tensor> loss_scales() const {
    std::vector<Tensor> all;
    for (const Copy& copy : copies_) all.push_back(copy.loss_scale);
    return all;
  }
  std::vector<optim::StepFlags> flags() const {
    std::vector<optim::StepFlags> all;
    for (const Copy& copy : copies_)
      all.push_back({.skip = copy.skip,
                     .left_out = copy.number(offsetof(StepState, left_out)),
                     .made = copy.number(offsetof(StepState, made))});
    return all;
  }

  void decide(const kernels::StepFindings& found) {
    Copy& first = copies_[0];
    kernels::of(first.state).decide_step(rules_, found, first.state, first.loss_scale, first.skip);
    for (Copy& other : copies_ | std::views::drop(1)) {
      other.state.copy_from(first.state);
      other.loss_scale.copy_from(first.loss_scale);
      other.skip.copy_from(first.skip);
    }
  }

  void copy_to_host(const LateValues& late) { late.copy(copies_[0].state, on_host_); }
  // Returns the state that was copied before the last wait.
  StepState on_host() const {
    StepState result;
    std::memcpy(&result, on_host_.raw(), sizeof(result));
    return result;
  }
  // Counts the steps that are left out from 0 again.
  void forget_left_out() {
    for (const Copy& copy : copies_) copy.number(offsetof(StepState, left_out)).fill(0);
  }

 private:
  struct Copy {
    Tensor state, loss_scale, skip;

    Tensor number(std::size_t offset) const {
      return state.slice(0, static_cast<std::int64_t>(offset / sizeof(double)), 1).reshape({});
    }
  };

  const kernels::StepRules rules_;
  std::vector<Copy> copies_;  // by device
  Tensor on_host_;
};

class DeviceRules final : public GradientRules, public LateReader {
 public:
  DeviceRules(const RuleContext& context, Device device, Device device_of_losses)
      : in_(context),
        counted_(in_.local.counted_parameters()),
        devices_{device},
        decides_(in_.state.scaler || in_.state.outliers) {
    add_device(device_of_losses);
    for (const auto& [name, parameter] : in_.local.parameters()) add_device(parameter.value().device());
    in_.values.add_reader(in_.gate);  // before what follows an update that was cancelled is used
    if (decides_) in_.values.add_reader(this);
    if (!decides_ && in_.gate != nullptr) let_skip({{.skip = in_.gate->cancelled()}});
  }
  ~DeviceRules() override {
    let_skip({});
    if (in_.state.scaler) in_.state.scaler->keep_on_devices({});
  }

  // A checkpoint may have been restored before the first step.
  void begin_step() override {
    if (!decides_ || decision_) return;
    decision_.emplace(in_.state, devices_);
    let_skip(decision_->flags());
    if (in_.state.scaler) in_.state.scaler->keep_on_devices(decision_->loss_scales());
  }

  void examine(StepResult&) override {
    auto& late = in_.values.late();
    auto& numbers = in_.values.findings();
    const auto& parameters = in_.local.parameters();
    not_finite_ = square_sum_ = clipped_square_sum_ = {};
    if (in_.state.scaler) {
      numbers.loss_scale = late.add(decision_->loss_scale());
      not_finite_ = optim::unscale_there(parameters, decision_->wide_loss_scale());
      in_.local.spread_failure(not_finite_);
    }
    if (in_.state.outliers) {
      square_sum_ = optim::grad_square_sum_there(counted_);
      in_.local.average_square_sum(square_sum_);
      numbers.square_sum = late.add(square_sum_);
    }
    if (in_.config.clip_value > 0) optim::clip_grad_value(parameters, in_.config.clip_value);
    if (in_.config.clip_norm > 0) {
      clipped_square_sum_ = optim::grad_square_sum_there(counted_);
      numbers.clipped_square_sum = late.add(clipped_square_sum_);
    }
  }

  bool apply(StepResult&) override {
    if (clipped_square_sum_.defined())
      optim::clip_grads_with_square_sum(in_.local.parameters(), in_.config.clip_norm, clipped_square_sum_);
    if (!decides_) return true;
    decision_->decide({.cancelled = in_.gate ? optim::number_in<float>(in_.gate->cancelled()) : nullptr,
                       .not_finite = optim::number_in<float>(not_finite_),
                       .square_sum = optim::number_in<double>(square_sum_)});
    in_.values.findings().skipped = in_.values.late().add(decision_->skip());
    return true;
  }

  void copy_to_host(LateValues& late) override { decision_->copy_to_host(late); }
  // The host has counted the steps that the device left out, too.
  void read(const LateValues&) override {
    const StepState known = decision_->on_host();
    auto& state = in_.state;
    if (state.scaler) state.scaler->set_state({known.loss_scale, static_cast<std::int64_t>(known.good_steps)});
    if (state.outliers) state.outliers->set_norms(norms_of(known));
    if (state.ema && known.made > 0) state.ema->set_started();
    if (known.left_out == 0) return;
    state.optimizer->set_step_count(state.optimizer->step_count() - static_cast<std::int64_t>(known.left_out));
    decision_->forget_left_out();
  }

 private:
  void add_device(Device device) {
    if (std::ranges::count(devices_, device) == 0) devices_.push_back(device);
  }

  void let_skip(const std::vector<optim::StepFlags>& flags) {
    in_.state.optimizer->skip_if(flags);
    if (in_.state.ema) in_.state.ema->skip_if(flags);
  }

  const RuleContext in_;
  const optim::NamedParameters counted_;
  std::vector<Device> devices_;
  const bool decides_;  // a rule may skip a step
  std::optional<Decision> decision_;
  Tensor not_finite_, square_sum_, clipped_square_sum_;  // those of the step in progress
};

}  // namespace

std::unique_ptr<GradientRules> make_device_rules(const RuleContext& context, Device device, Device device_of_losses) {
  return std::make_unique<DeviceRules>(context, device, device_of_losses);
}

}  // namespace ddprun::trainer
