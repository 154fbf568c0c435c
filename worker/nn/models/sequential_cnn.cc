// One convolution and two linear layers, named by number as PyTorch's nn.Sequential names them: 0, 4 and 6.
#include "worker/nn/layers.h"
#include "worker/nn/models/makers.h"

namespace ddprun::nn {

std::unique_ptr<Module> make_sequential_cnn(const ModelOptions& options, Generator& generator) {
  const auto shrink = [](std::int64_t size) { return (size - 4) / 2; };
  const std::int64_t features = 10 * shrink(options.input[1]) * shrink(options.input[2]);
  auto model = std::make_unique<Sequential>();
  model->add(std::make_unique<Conv2d>(options.input[0], 10, 5, generator))
      .add(std::make_unique<ReLU>())
      .add(std::make_unique<MaxPool2d>(PoolOptions{.kernel = 2}))
      .add(std::make_unique<Flatten>())
      .add(std::make_unique<Linear>(features, 50, generator))
      .add(std::make_unique<ReLU>())
      .add(std::make_unique<Linear>(50, options.outputs, generator));
  return model;
}

}  // namespace ddprun::nn
