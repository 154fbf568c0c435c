#include "worker/data/batch.h"

#include <span>

#include <fmt/ranges.h>

#include "common/error.h"
#include "worker/tensor/upload.h"

namespace ddprun::data {
namespace {

Shape batch_shape(std::int64_t count, const std::vector<std::int64_t>& sample) {
  Shape shape(sample);
  shape.insert(0, count);
  return shape;
}

std::span<std::byte> row(Tensor& tensor, std::size_t index, std::size_t bytes) {
  return {static_cast<std::byte*>(tensor.raw()) + index * bytes, bytes};
}

}  // namespace

void Batch::add(std::string name, Tensor tensor) {
  tensors_.emplace_back(std::move(name), std::move(tensor));
}

const Tensor* Batch::find_in(const NamedTensors& tensors, std::string_view name) {
  for (const auto& [own, tensor] : tensors)
    if (own == name) return &tensor;
  return nullptr;
}

const Tensor* Batch::find(std::string_view name) const {
  return find_in(tensors_, name);
}

const Tensor& Batch::on_host(std::string_view name) const {
  const Tensor* tensor = find_in(host_tensors_, name);
  return tensor ? *tensor : at(name);
}

Batch Batch::to(Device inputs, Device targets) const {
  Batch moved = *this;
  for (auto& [name, tensor] : moved.tensors_) tensor = upload(tensor, name == "input" ? inputs : targets);
  if (inputs.type != DeviceType::cpu) moved.host_tensors_ = tensors_;
  return moved;
}

const Tensor& Batch::at(std::string_view name) const {
  if (const Tensor* tensor = find(name)) return *tensor;
  std::vector<std::string_view> names;
  for (const auto& entry : tensors_) names.push_back(entry.first);
  throw make_error(Errc::usage, "a batch has no tensor {}, only: {}", name, fmt::join(names, ", "));
}

Batch make_batch(const Dataset& dataset, std::vector<std::int64_t> samples, std::int64_t epoch) {
  const auto& layout = dataset.layout();
  const auto count = std::ssize(samples);
  auto input = Tensor::empty(batch_shape(count, layout.input_shape), layout.input_dtype);
  auto target = Tensor::empty(batch_shape(count, layout.target_shape), layout.target_dtype);
  const auto input_bytes = layout.input_bytes();
  const auto target_bytes = layout.target_bytes();
  for (std::size_t i = 0; i < samples.size(); ++i)
    dataset.read(samples[i], row(input, i, input_bytes), row(target, i, target_bytes));
  Batch batch;
  batch.add("input", std::move(input));
  batch.add("target", std::move(target));
  batch.samples = std::move(samples);
  batch.epoch = epoch;
  return batch;
}

}  // namespace ddprun::data
