// A GPT on a CUDA device, where its parts are fused: it learns what it learns on the CPU; and the number of kernels and
// library calls that a step queues, by layer and operation.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "worker/autograd/autocast.h"
#include "worker/autograd/function.h"
#include "worker/autograd/operation_observer.h"
#include "worker/nn/models.h"
#include "worker/optim/clip.h"
#include "worker/optim/optimizer.h"
#include "worker/tasks/tasks.h"
#include "worker/tensor/cuda/cuda_device.h"
#include "tests/support/emulated_cuda.h"
#include "tests/support/numerics.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

[[maybe_unused]] const bool has_devices = use_emulated_cuda(1);
const Device cpu{}, gpu{DeviceType::cuda, 0};

std::uint64_t launches_so_far() {
  const auto& device = cuda::CudaDevice::of(gpu);
  return device.api().launches(device.context());
}

// Gives each launch the name of the layer and the operation that queued it.
class LaunchCounts : public autograd::OperationObserver {
 public:
  void forward_begins(const char* name) override { begin(autograd::current_scope() + " " + name + ", forward"); }
  double result_computed(const char*, const std::vector<Variable>&, const Tensor&) override { return 0; }
  void forward_ends() override { end(); }
  void backward_begins(const char* name, const std::string& module, double, int) override {
    begin(module + " " + name + ", backward");
  }
  void backward_ends() override { end(); }

  std::string text() const {
    std::string lines;
    for (const std::string& name : order_) lines += std::to_string(counts_.at(name)) + "  " + name + "\n";
    return lines;
  }

 private:
  struct Call {
    std::string name;
    std::uint64_t before;
    std::uint64_t of_others = 0;  // those queued by operations within this one
  };

  void begin(const std::string& name) { calls_.push_back({name, launches_so_far()}); }
  void end() {
    const Call call = calls_.back();
    calls_.pop_back();
    const std::uint64_t all = launches_so_far() - call.before;
    if (!calls_.empty()) calls_.back().of_others += all;
    if (all == call.of_others) return;
    if (counts_[call.name] == 0) order_.push_back(call.name);
    counts_[call.name] += all - call.of_others;
  }

  std::vector<Call> calls_;
  std::vector<std::string> order_;
  std::map<std::string, std::uint64_t> counts_;
};

struct Step {
  std::uint64_t forward, backward, update;  // launches
  Tensor loss;
};

// GPT-2's form with small sizes: more rows than a norm's segment has, and a vocabulary whose indices have two digits.
class Training {
 public:
  explicit Training(std::int64_t layers, Device device = gpu) : device_(device) {
    Generator generator(3);
    model_ = nn::make_model("gpt",
                            {.input = {time},
                             .input_dtype = DType::int64,
                             .outputs = vocabulary,
                             .gpt = {.layers = layers, .heads = 2, .width = 32, .context = time, .bias = true}},
                            generator);
    model_->to(device);
    parameters_ = model_->named_parameters();
    for (auto& [name, parameter] : parameters_)  // as with the buckets of data parallelism
      parameter.set_grad_storage(Tensor::zeros(parameter.shape(), DType::float32, device));
    optimizer_ = optim::make_optimizer("adamw", {}, parameters_);
    task_ = tasks::make_task(
        "language_modelling",
        {.layout = {
             .input_shape = {time}, .input_dtype = DType::int64, .target_shape = {time}, .vocabulary = vocabulary}});
  }

  Step step(DType precision, LaunchCounts& counts) {
    for (auto& [name, parameter] : parameters_) parameter.zero_grad();
    const std::uint64_t start = launches_so_far();
    const autograd::AutocastScope scope(precision);
    std::uint64_t computed = 0, passed = 0;
    Variable loss;
    {
      const autograd::ObservationScope observation(counts);
      loss = task_->loss([&](const Variable& input) { return (*model_)(input); }, batch()).loss;
      computed = launches_so_far();
      loss.backward();
      passed = launches_so_far();
    }
    optim::clip_grad_norm(parameters_, 1);
    optimizer_->step();
    return {computed - start, passed - computed, launches_so_far() - passed, loss.value().to(cpu)};
  }

  // Runs that many passes without a step in between.
  void pass(DType precision, int times) {
    for (auto& [name, parameter] : parameters_) parameter.zero_grad();
    const autograd::AutocastScope scope(precision);
    for (int i = 0; i < times; ++i)
      task_->loss([&](const Variable& input) { return (*model_)(input); }, batch()).loss.backward();
  }

  nn::Module& model() { return *model_; }
  const optim::NamedParameters& parameters() const { return parameters_; }

 private:
  static constexpr std::int64_t time = 48, vocabulary = 300, samples = 2;

  data::Batch batch() const {
    Tensor input = Tensor::empty({samples, time}, DType::int64), target = input.clone();
    for (std::int64_t i = 0; i < input.numel(); ++i) {
      input.data<std::int64_t>()[i] = i * 7 % vocabulary;
      target.data<std::int64_t>()[i] = (i + 1) * 7 % vocabulary;
    }
    data::Batch batch;
    batch.samples.resize(samples);
    batch.add("input", input);
    batch.add("target", target);
    return batch.to(device_);
  }

  Device device_;
  std::unique_ptr<nn::Module> model_;
  optim::NamedParameters parameters_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<tasks::Task> task_;
};

// Returns the largest difference, as a share of the largest expected magnitude.
double share_of_largest(const Tensor& found, const Tensor& expected) {
  const auto a = values(found), b = values(expected);
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (!(std::abs(a[i] - b[i]) <= worst)) worst = std::abs(a[i] - b[i]);
    largest = std::max(largest, std::abs(b[i]));
  }
  return worst / largest;
}

// Returns the launches of the second step: the first one casts weights one by one.
Step launches_of(std::int64_t layers, DType precision, LaunchCounts& counts) {
  Training training(layers);
  LaunchCounts first;
  training.step(precision, first);
  return training.step(precision, counts);
}

}  // namespace

TEST_CASE("a GPT learns language on a CUDA device as on the CPU, and the same bits come out each time") {
  for (const DType precision : {DType::float32, DType::bfloat16, DType::float16}) {
    INFO(name_of(precision));
    Training here(2, cpu), there(2), again(2);
    LaunchCounts counts;
    for (int step = 0; step < 4; ++step) {
      const double expected = here.step(precision, counts).loss.item();
      const Tensor found = there.step(precision, counts).loss;
      CHECK(std::abs(found.item() - expected) < (precision == DType::float32 ? 2e-5 : 0.02));
      CHECK(same_bits(found, again.step(precision, counts).loss));
    }
  }
}

TEST_CASE("gradients of a GPT on a CUDA device add up over passes as on the CPU") {
  for (const DType precision : {DType::float32, DType::bfloat16}) {
    Training here(2, cpu), there(2);
    here.pass(precision, 3);
    there.pass(precision, 3);
    for (std::size_t i = 0; i < here.parameters().size(); ++i) {
      const auto& [name, expected] = here.parameters()[i];
      INFO(name << ", " << name_of(precision));
      CHECK(share_of_largest(there.parameters()[i].second.grad().to(cpu), expected.grad()) <
            (precision == DType::float32 ? 1e-4 : 0.05));
    }
  }
}

TEST_CASE("blocks of a GPT that are computed again on a CUDA device give the same bits") {
  Training whole(2), again(2);
  again.model().set_recompute(nn::Recompute::blocks);
  whole.pass(DType::bfloat16, 1);
  again.pass(DType::bfloat16, 1);
  for (std::size_t i = 0; i < whole.parameters().size(); ++i) {
    INFO(whole.parameters()[i].first);
    CHECK(same_bits(again.parameters()[i].second.grad().to(cpu), whole.parameters()[i].second.grad().to(cpu)));
  }
}

TEST_CASE("a block of a GPT takes 7 launches forward and 14 backward in 16 bits") {
  LaunchCounts one, three;
  const Step of_one = launches_of(1, DType::bfloat16, one), of_three = launches_of(3, DType::bfloat16, three);
  INFO(three.text());
  CHECK(of_three.forward - of_one.forward == 2 * 7);
  CHECK(of_three.backward - of_one.backward == 2 * 14);
}

TEST_CASE("a step of a GPT of 12 blocks takes at most 300 launches") {
  LaunchCounts counts;
  const Step launches = launches_of(12, DType::bfloat16, counts);
  INFO(counts.text());
  INFO(launches.forward << " forward, " << launches.backward << " backward, " << launches.update << " for the update");
  CHECK(launches.forward + launches.backward + launches.update <= 300);
}
