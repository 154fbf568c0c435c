// Every model on an emulated CUDA device: it learns what it learns on the CPU, and no step waits for the device.
#include <string>
#include <string_view>
#include <vector>

#include "worker/autograd/autocast.h"
#include "worker/nn/layers.h"
#include "worker/nn/layers/mixture_of_experts.h"
#include "worker/nn/quantization/quantize.h"
#include "worker/nn/random_scope.h"
#include "worker/nn/state.h"
#include "worker/optim/clip.h"
#include "worker/optim/grad_scaler.h"
#include "worker/optim/optimizer.h"
#include "worker/tensor/cuda/cuda_device.h"
#include "worker/tensor/upload.h"
#include "tests/numerics/model_cases.h"
#include "tests/support/emulated_cuda.h"
#include "tests/support/numerics.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

[[maybe_unused]] const bool has_devices = use_emulated_cuda(1);
const Device cpu{}, gpu{DeviceType::cuda, 0};

std::unique_ptr<nn::Module> make(const ModelCase& model_case) {
  Generator generator(3);
  return nn::make_model(model_case.model(), model_case.options, generator);
}

class Training {
 public:
  Training(const ModelCase& model_case, const std::string& optimizer, optim::OptimOptions options, DType dtype,
           Device device)
      : case_(model_case), device_(device), dtype_(dtype), model_(make(model_case)) {
    model_->to(dtype);
    model_->to(device);
    optimizer_ = optim::make_optimizer(optimizer, options, model_->named_parameters());
  }

  // Returns the loss, on the device.
  Tensor step(std::int64_t number) {
    Tensor inputs = model_inputs(case_, number);
    if (!case_.tokens()) inputs = inputs.to(dtype_);
    optimizer_->zero_grad();
    const Variable loss = case_.loss((*model_)(Variable(upload(inputs, device_))), targets(number));
    loss.backward();
    optimizer_->step();
    return loss.value();
  }

  nn::Module& model() { return *model_; }

 private:
  Tensor targets(std::int64_t number) const {
    const Tensor targets = model_targets(case_, number);
    return upload(is_floating(targets.dtype()) ? targets.to(dtype_) : targets, device_);
  }

  const ModelCase& case_;
  Device device_;
  DType dtype_;
  std::unique_ptr<nn::Module> model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
};

const ModelCase& case_of(std::string_view name) {
  for (const ModelCase& model_case : model_cases())
    if (model_case.name == name) return model_case;
  FAIL("there is no case " << name);
  throw std::logic_error(std::string(name));
}

std::uint64_t waits() {
  const auto& device = cuda::CudaDevice::of(gpu);
  return device.api().synchronizations(device.context());
}

}  // namespace

TEST_CASE("every model learns on a CUDA device what it learns on the CPU") {
  for (const ModelCase& model_case : model_cases()) {
    INFO(model_case.name);
    Training here(model_case, "sgd", {.lr = model_case.lr, .momentum = 0.9}, model_case.dtype, cpu),
        there(model_case, "sgd", {.lr = model_case.lr, .momentum = 0.9}, model_case.dtype, gpu);
    std::vector<double> expected, found;
    for (std::int64_t step = 0; step < 3; ++step) {
      expected.push_back(here.step(step).item());
      found.push_back(there.step(step).item());
    }
    CHECK(difference(found, expected) < (model_case.dtype == DType::float64 ? 1e-9 : 1e-5));
    const auto own = there.model().named_buffers(), others = here.model().named_buffers();
    for (std::size_t i = 0; i < own.size(); ++i) {
      INFO(own[i].first);
      CHECK(difference(own[i].second.to(cpu), others[i].second) < 1e-5);
    }
  }
}

TEST_CASE("adam and adamw step on a CUDA device as on the CPU, and the same bits come out each time") {
  const ModelCase& model_case = case_of("cnn");
  for (const char* optimizer : {"adam", "adamw"}) {
    INFO(optimizer);
    const optim::OptimOptions options{.lr = 0.01, .weight_decay = 0.1};
    Training here(model_case, optimizer, options, DType::float32, cpu),
        there(model_case, optimizer, options, DType::float32, gpu),
        again(model_case, optimizer, options, DType::float32, gpu);
    for (std::int64_t step = 0; step < 5; ++step) {
      const double expected = here.step(step).item();
      const Tensor found = there.step(step);
      CHECK(std::abs(found.item() - expected) < 1e-5);
      CHECK(same_bits(found.to(cpu), again.step(step).to(cpu)));
    }
  }
}

TEST_CASE("a training step on a CUDA device does not wait for it") {
  for (const char* name : {"cnn", "cnn_bn", "gpt"}) {
    INFO(name);
    const autograd::AutocastScope scope(DType::bfloat16);
    Training training(case_of(name), "adamw", {}, DType::float32, gpu);
    training.step(0);
    const auto before = waits();
    training.step(1);
    CHECK(waits() == before);
  }
}

TEST_CASE("an optimizer without kernels for a CUDA device is refused, with its name") {
  for (const char* optimizer : {"rmsprop", "adagrad", "lamb", "lars", "muon"}) {
    Training training(case_of("cnn"), optimizer, {}, DType::float32, gpu);
    CHECK_THROWS_WITH(training.step(0), Catch::Contains(optimizer) && Catch::Contains("cuda:0"));
  }
}

namespace {

optim::NamedParameters with_gradients(Device device) {
  optim::NamedParameters all;
  for (std::uint64_t i = 0; i < 4; ++i) {
    Variable parameter(Tensor::zeros({5, 3}, DType::float32, device), true);
    parameter.set_grad_storage(Tensor::zeros({5, 3}, DType::float32, device));
    Tensor(parameter.grad()).copy_from(random_tensor({5, 3}, i + 1));
    all.emplace_back("p" + std::to_string(i), parameter);
  }
  return all;
}

void check_same_gradients(const optim::NamedParameters& found, const optim::NamedParameters& expected) {
  for (std::size_t i = 0; i < found.size(); ++i)
    CHECK(difference(found[i].second.grad().to(cpu), expected[i].second.grad()) < 1e-6);
}

}  // namespace

TEST_CASE("gradients on a CUDA device are clipped as on the CPU, with one look at the device") {
  const auto here = with_gradients(cpu), there = with_gradients(gpu);
  const auto before = waits();
  const double found = optim::clip_grad_norm(there, 1.5);
  CHECK(waits() - before <= 2);  // a copy to the host, and the end of the queue
  CHECK(std::abs(found - optim::clip_grad_norm(here, 1.5)) < 1e-6);
  check_same_gradients(there, here);
  optim::clip_grad_value(here, 0.2);
  optim::clip_grad_value(there, 0.2);
  check_same_gradients(there, here);
}

TEST_CASE("gradients on a CUDA device are clipped and unscaled without a look at the device") {
  const auto here = with_gradients(cpu), there = with_gradients(gpu);
  const optim::GradScaler scaler({.scale = 8});
  const Tensor scale = Tensor::full({}, 8, DType::float64, gpu);
  const auto before = waits();
  const Tensor not_finite = optim::unscale_there(there, scale);
  optim::clip_grad_value(there, 0.3);
  const Tensor sum = optim::grad_square_sum_there(there);
  optim::clip_grads_with_square_sum(there, 0.25, sum);
  CHECK(waits() == before);
  CHECK(scaler.unscale(here));
  optim::clip_grad_value(here, 0.3);
  const Tensor expected = optim::grad_square_sum_there(here);
  optim::clip_grads_with_square_sum(here, 0.25, expected);
  CHECK(not_finite.item() == 0);
  CHECK(std::abs(sum.item() - expected.item()) < 1e-9);
  check_same_gradients(there, here);
}

TEST_CASE("gradients on a CUDA device are unscaled, and an infinity is found, with one look at the device") {
  const auto here = with_gradients(cpu), there = with_gradients(gpu);
  const optim::GradScaler scaler({.scale = 8});
  const auto before = waits();
  CHECK(scaler.unscale(there));
  CHECK(waits() - before <= 2);
  CHECK(scaler.unscale(here));
  check_same_gradients(there, here);
  Tensor(there[2].second.grad()).slice(0, 1, 1).fill(INFINITY);
  CHECK_FALSE(scaler.unscale(there));
}

TEST_CASE("a model's state goes from a CUDA device to a file and back") {
  const ddprun::testing::TempDir folder;
  const auto file = folder.path() / "model.safetensors";
  Training trained(case_of("cnn_bn"), "sgd", {.lr = 0.1}, DType::float32, gpu);
  trained.step(0);
  nn::save_state(trained.model(), file);
  Training here(case_of("cnn_bn"), "sgd", {}, DType::float32, cpu),
      there(case_of("cnn_bn"), "sgd", {}, DType::float32, gpu);
  nn::load_state(here.model(), file);
  nn::load_state(there.model(), file);
  const auto expected = trained.model().named_parameters();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(same_bits(here.model().named_parameters()[i].second.value(), expected[i].second.value().to(cpu)));
    CHECK(same_bits(there.model().named_parameters()[i].second.value().to(cpu), expected[i].second.value().to(cpu)));
  }
}

TEST_CASE("a count of batches on a CUDA device goes on from what a checkpoint holds") {
  nn::BatchNorm norm(2);
  norm.to(gpu);
  const Variable input(random_tensor({4, 2}, 1).to(gpu));
  const auto count = [&] { return norm.named_buffers()[2].second.item(); };
  norm(input);
  norm(input);
  CHECK(count() == 2);
  Tensor(norm.named_buffers()[2].second).copy_from(Tensor::from(std::vector<std::int64_t>{40}, {}));
  norm(input);
  norm(input);
  CHECK(count() == 42);
}

TEST_CASE("dropout on a CUDA device drops what it drops on the CPU") {
  const auto run = [](Device device) {
    const nn::RandomScope random({.seed = 3, .epoch = 1, .samples = {5, 6, 7, 8}});
    nn::Dropout dropout(0.4, Generator(1));
    return dropout(Variable(random_tensor({4, 9}, 2).to(device))).value().to(cpu);
  };
  CHECK(same_bits(run(gpu), run(cpu)));
}

TEST_CASE("a mixture of experts routes on the host and computes on the CUDA device") {
  const auto run = [](Device device) {
    Generator generator(4);
    nn::MixtureOfExperts experts({.width = 6, .hidden = 8, .experts = 3, .per_token = 2}, generator);
    experts.to(device);
    const Variable input(random_tensor({2, 5, 6}, 3).to(device), true);
    const Variable result = experts(input);
    sum(mul(result, result)).backward();
    return std::pair{result.value().to(cpu), input.grad().to(cpu)};
  };
  const auto [expected, expected_gradient] = run(cpu);
  const auto [found, gradient] = run(gpu);
  CHECK(difference(found, expected) < 1e-5);
  CHECK(difference(gradient, expected_gradient) < 1e-5);
}

TEST_CASE("a model on a CUDA device learns for 8 bits, and is not quantized there") {
  const auto run = [](Device device) {
    Generator generator(4);
    const auto model = nn::make_model("mlp", {.input = {6}, .outputs = 3, .hidden = {8}}, generator);
    nn::make_quantization_aware(*model);
    model->to(device);
    return (*model)(Variable(random_tensor({4, 6}, 3).to(device))).value().to(cpu);
  };
  CHECK(difference(run(gpu), run(cpu)) < 1e-5);
  Generator generator(4);
  const auto model = nn::make_model("mlp", {.input = {6}, .outputs = 3, .hidden = {8}}, generator);
  model->to(gpu);
  CHECK_THROWS_WITH(nn::quantize_dynamic(*model), Catch::Contains("8 bits") && Catch::Contains("cuda:0"));
}
