#include "worker/nn/layers/residual.h"

#include "worker/autograd/ops/activation.h"
#include "worker/autograd/ops/elementwise.h"

namespace ddprun::nn {
namespace {

std::unique_ptr<Conv2d> convolution(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                                    Generator& generator) {
  return std::make_unique<Conv2d>(
      in, out, kernel, generator,
      Conv2dOptions{.stride = stride, .padding = kernel / 2, .bias = false, .weights = ConvWeights::kaiming_normal});
}

// The shortcut used if the shape changes.
std::unique_ptr<Sequential> projection(std::int64_t in, std::int64_t out, std::int64_t stride, Generator& generator) {
  auto parts = std::make_unique<Sequential>();
  parts->add(convolution(in, out, 1, stride, generator)).add(std::make_unique<BatchNorm>(out));
  return parts;
}

}  // namespace

BasicBlock::BasicBlock(std::int64_t in, std::int64_t out, std::int64_t stride, Generator& generator)
    : conv1_(register_module("conv1", convolution(in, out, 3, stride, generator))),
      bn1_(register_module("bn1", std::make_unique<BatchNorm>(out))),
      conv2_(register_module("conv2", convolution(out, out, 3, 1, generator))),
      bn2_(register_module("bn2", std::make_unique<BatchNorm>(out))) {
  if (in != out || stride != 1) downsample_ = &register_module("downsample", projection(in, out, stride, generator));
}

Variable BasicBlock::forward(const Variable& input) {
  const Variable inner = relu(bn1_(conv1_(input)));
  const Variable shortcut = downsample_ ? (*downsample_)(input) : input;
  return relu(add(bn2_(conv2_(inner)), shortcut));
}

Bottleneck::Bottleneck(std::int64_t in, std::int64_t width, std::int64_t stride, Generator& generator)
    : conv1_(register_module("conv1", convolution(in, width, 1, 1, generator))),
      bn1_(register_module("bn1", std::make_unique<BatchNorm>(width))),
      conv2_(register_module("conv2", convolution(width, width, 3, stride, generator))),
      bn2_(register_module("bn2", std::make_unique<BatchNorm>(width))),
      conv3_(register_module("conv3", convolution(width, expansion * width, 1, 1, generator))),
      bn3_(register_module("bn3", std::make_unique<BatchNorm>(expansion * width))) {
  const std::int64_t out = expansion * width;
  if (in != out || stride != 1) downsample_ = &register_module("downsample", projection(in, out, stride, generator));
}

Variable Bottleneck::forward(const Variable& input) {
  const Variable inner = relu(bn2_(conv2_(relu(bn1_(conv1_(input))))));
  const Variable shortcut = downsample_ ? (*downsample_)(input) : input;
  return relu(add(bn3_(conv3_(inner)), shortcut));
}

}  // namespace ddprun::nn
