#include "worker/profiler/operation_recorder.h"

#include <string_view>
#include <utility>

#include "worker/autograd/function.h"
#include "worker/autograd/operation_observer.h"
#include "worker/profiler/recorder.h"

namespace ddprun::profiler {
namespace {

double elements(const Shape& shape) {
  return static_cast<double>(numel(shape));
}

// Returns the multiplications and additions of a product, a convolution or an attention, whose mask is not considered;
// 0 for others.
double flops_of(std::string_view name, const std::vector<Variable>& inputs, const Tensor& result) {
  if (name == "linear" || name == "matmul" || name == "addmm" || name == "grouped_mm" || name == "residual_addmm")
    return 2 * elements(result.shape()) * static_cast<double>(inputs[0].shape().back());
  if (name == "residual_mlp") {
    const double hidden = static_cast<double>(inputs[1].shape()[1]);
    return 2 * (elements(inputs[0].shape()) + elements(result.shape())) * hidden;
  }
  if (name == "linear_cross_entropy")
    return 2 * elements(inputs[0].shape()) * static_cast<double>(inputs[1].shape()[0]);
  if (name == "conv2d") {
    const Shape& weight = inputs[1].shape();
    return 2 * elements(result.shape()) * elements(weight) / static_cast<double>(weight[0]);
  }
  // The scores and their product with the values: 2 FLOPs each for each element of the result and each key.
  if (name == "attention") {
    const Shape& key = inputs[1].shape();
    return 4 * elements(result.shape()) * static_cast<double>(key[key.size() - 2]);
  }
  if (name == "packed_attention") return 4 * elements(result.shape()) * static_cast<double>(result.shape()[1]);
  return 0;
}

// A product has a product for each input that gets a gradient; an attention has two for each of the forward ones.
double backward_flops(std::string_view name, double forward, int wanted) {
  return name.ends_with("attention") ? 2 * forward : wanted * forward;
}

}  // namespace

// Listens with the times of a clock.
class OperationRecorder::ClockListener final : public OperationListener {
 public:
  explicit ClockListener(Clock clock) : clock_(std::move(clock)) {}

  void begin(Kind kind, const char* name, const std::string& module) override {
    recorder_.begin(kind, name, module, clock_());
  }
  void add_flops(double flops) override { recorder_.add_flops(flops); }
  void end() override { recorder_.end(clock_()); }

  std::vector<Event> take() { return recorder_.take(); }

 private:
  const Clock clock_;
  Recorder recorder_;
};

class OperationRecorder::Observer final : public autograd::OperationObserver {
 public:
  explicit Observer(OperationListener& listener) : listener_(listener), scope_(*this) {}

  void forward_begins(const char* name) override { listener_.begin(Kind::forward, name, autograd::current_scope()); }
  double result_computed(const char* name, const std::vector<Variable>& inputs, const Tensor& result) override {
    const double flops = flops_of(name, inputs, result);
    listener_.add_flops(flops);
    return flops;
  }
  void forward_ends() override { listener_.end(); }
  void backward_begins(const char* name, const std::string& module, double forward_cost, int wanted) override {
    listener_.begin(Kind::backward, name, module);
    listener_.add_flops(backward_flops(name, forward_cost, wanted));
  }
  void backward_ends() override { listener_.end(); }

 private:
  OperationListener& listener_;
  const autograd::ObservationScope scope_;
};

OperationRecorder::OperationRecorder(Clock clock)
    : own_(std::make_unique<ClockListener>(std::move(clock))), observer_(std::make_unique<Observer>(*own_)) {}
OperationRecorder::OperationRecorder(OperationListener& listener) : observer_(std::make_unique<Observer>(listener)) {}
OperationRecorder::~OperationRecorder() = default;

std::vector<Event> OperationRecorder::take() {
  return own_ ? own_->take() : std::vector<Event>();
}

}  // namespace ddprun::profiler
