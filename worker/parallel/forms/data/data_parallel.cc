#include "worker/parallel/forms/data/data_parallel.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/error.h"
#include "common/rounding.h"
#include "worker/autograd/function.h"
#include "worker/nn/random_scope.h"
#include "worker/parallel/thread_local_state.h"
#include "worker/tensor/device_threads.h"

namespace ddprun {
namespace {

using NamedParameters = std::vector<std::pair<std::string, Variable>>;
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// A range of rows of a batch.
struct Rows {
  std::int64_t begin = 0, count = 0;
};

// Returns at least one part, which has no rows if there are none.
std::vector<Rows> divide(std::int64_t rows, std::size_t parts) {
  if (rows == 0) return {Rows{}};
  const auto n = static_cast<std::int64_t>(parts);
  const std::int64_t size = divide_up(rows, n);
  std::vector<Rows> all;
  for (std::int64_t begin = 0; begin < rows; begin += size) all.push_back({begin, std::min(size, rows - begin)});
  return all;
}

// Runs on the caller's thread, not on the device's: while that one runs, no other uses its device or the first device.
Tensor scattered(const Tensor& all, const Rows& rows, Device device) {
  return all.slice(0, rows.begin, rows.count).contiguous().to(device);
}

// Returns the keys of these rows' samples; none outside of a RandomScope.
std::optional<nn::SampleKeys> keys_of(const nn::SampleKeys* all, const Rows& rows) {
  if (!all) return std::nullopt;
  const auto first = all->samples.begin() + rows.begin;
  return nn::SampleKeys{.seed = all->seed, .epoch = all->epoch, .samples = {first, first + rows.count}};
}

// A model's copy on one device.
struct Replica {
  Device device;
  std::unique_ptr<nn::Module> module;
  NamedParameters parameters;
  std::vector<std::uint64_t> versions;  // those of the model's values that the parameters have
  std::vector<const Storage*> sources;
};

// One device's part of a pass. The tape ends at the input and at the replica's parameters.
struct Part {
  Rows rows;
  Variable input, result;
};

void check_same(const nn::Module& model, const nn::Module& replica) {
  const auto own = model.named_parameters(), other = replica.named_parameters();
  const bool same = std::ranges::equal(own, other, [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.shape() == b.second.shape();
  });
  if (!same || model.named_buffers().size() != replica.named_buffers().size())
    throw Error(Errc::usage, "DataParallel: a replica has other parameters or buffers than the model");
}

}  // namespace

class DataParallel::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(nn::Module& model, const MakeReplica& make_replica, const std::vector<Device>& devices)
      : model_(model), parameters_(model.named_parameters()), threads_(devices.size()) {
    if (devices.size() == 1) return;
    for (const Device device : devices) {
      auto module = make_replica();
      check_same(model, *module);
      module->to(device);
      replicas_.push_back({.device = device, .module = std::move(module)});
      replicas_.back().parameters = replicas_.back().module->named_parameters();
    }
  }

  Variable forward(const Variable& input) {
    if (replicas_.empty()) return model_(input);
    std::vector<Variable> inputs{input};
    for (const auto& [name, parameter] : parameters_) inputs.push_back(parameter);
    const autograd::Function operation("data_parallel", inputs);
    auto parts = compute(input);
    Tensor result = gather(*parts);
    return operation.record(std::move(result), {}, [self = shared_from_this(), parts](autograd::Backward& pass) {
      self->backward(*parts, pass);
    });
  }

 private:
  using Parts = std::vector<Part>;

  void take_values(Replica& replica) const {
    replica.module->train(model_.training());
    replica.versions.resize(parameters_.size());
    replica.sources.resize(parameters_.size());
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      const Variable& own = parameters_[p].second;
      Variable& copy = replica.parameters[p].second;
      copy.set_requires_grad(own.requires_grad());
      const Storage* source = own.value().storage().get();
      if (replica.sources[p] == source && replica.versions[p] == own.value().version()) continue;
      copy.set_value(own.value().to(replica.device));
      replica.sources[p] = source;
      replica.versions[p] = own.value().version();
    }
    auto copies = replica.module->named_buffers();
    const auto buffers = model_.named_buffers();
    for (std::size_t b = 0; b < buffers.size(); ++b) copies[b].second.copy_from(buffers[b].second.to(replica.device));
  }

  std::shared_ptr<Parts> compute(const Variable& input) {
    const auto rows = divide(input.shape()[0], replicas_.size());
    auto parts = std::make_shared<Parts>(rows.size());
    for (std::size_t k = 0; k < rows.size(); ++k) {
      take_values(replicas_[k]);
      (*parts)[k] = {.rows = rows[k],
                     .input = Variable(scattered(input.value(), rows[k], replicas_[k].device), input.requires_grad()),
                     .result = {}};
    }
    const ThreadLocalState state;
    const nn::SampleKeys* keys = nn::RandomScope::current();
    threads_.run([&](std::size_t k) {
      if (k >= rows.size()) return;
      const ThreadLocalStateGuard guard(state);
      std::optional<nn::RandomScope> random;
      if (auto own = keys_of(keys, rows[k])) random.emplace(std::move(*own));
      Part& part = (*parts)[k];
      part.result = (*replicas_[k].module)(part.input);
    });
    keep_buffers();
    return parts;
  }

  // The model's running statistics are those of the first replica.
  void keep_buffers() const {
    auto buffers = model_.named_buffers();
    const auto first = replicas_[0].module->named_buffers();
    for (std::size_t b = 0; b < buffers.size(); ++b) buffers[b].second.copy_from(first[b].second);
  }

  Tensor gather(const Parts& parts) const {
    const Tensor& first = parts[0].result.value();
    Shape shape = first.shape();
    shape[0] = 0;
    for (const Part& part : parts) shape[0] += part.result.shape()[0];
    Tensor all = Tensor::empty(shape, first.dtype(), replicas_[0].device);
    std::int64_t row = 0;
    for (const Part& part : parts) {
      const Tensor value = part.result.value().contiguous().to(replicas_[0].device);
      all.slice(0, row, value.size(0)).copy_from(value);
      row += value.size(0);
    }
    return all;
  }

  void backward(Parts& parts, autograd::Backward& pass) {
    std::vector<Tensor> gradients;
    for (std::int64_t row = 0; const Part& part : parts) {
      const Rows own{row, part.result.shape()[0]};
      const Device device = replicas_[gradients.size()].device;
      gradients.push_back(part.result.requires_grad() ? scattered(pass.grad(), own, device) : Tensor());
      row += own.count;
    }
    threads_.run([&, checks = autograd::anomaly_detection()](std::size_t k) {
      if (k >= parts.size()) return;
      std::optional<autograd::AnomalyScope> anomaly;
      if (checks) anomaly.emplace();
      for (auto& [name, parameter] : replicas_[k].parameters)
        if (parameter.requires_grad()) parameter.zero_grad();  // frozen parameters have none
      if (gradients[k].defined()) parts[k].result.backward(gradients[k]);
    });
    if (pass.wants(0)) pass.add(0, gradient_of_input(parts));
    for (std::size_t p = 0; p < parameters_.size(); ++p)
      for (std::size_t k = 0; k < parts.size(); ++k) {
        const Tensor& gradient = replicas_[k].parameters[p].second.grad();
        if (pass.wants(p + 1) && gradient.defined()) pass.add(p + 1, gradient.to(replicas_[0].device));
      }
  }

  Tensor gradient_of_input(const Parts& parts) const {
    Shape shape = parts[0].input.shape();
    shape[0] = parts.back().rows.begin + parts.back().rows.count;
    Tensor all = Tensor::zeros(shape, parts[0].input.dtype(), replicas_[0].device);
    for (const Part& part : parts)
      if (part.input.grad().defined())
        all.slice(0, part.rows.begin, part.rows.count).copy_from(part.input.grad().to(replicas_[0].device));
    return all;
  }

  nn::Module& model_;
  const NamedParameters parameters_;
  std::vector<Replica> replicas_;
  DeviceThreads threads_;
};

DataParallel::DataParallel(nn::Module& model, const MakeReplica& make_replica, std::vector<Device> devices) {
  if (devices.empty()) throw Error(Errc::usage, "DataParallel: there are no devices");
  impl_ = std::make_shared<Impl>(model, make_replica, devices);
}
DataParallel::~DataParallel() = default;

Variable DataParallel::forward(const Variable& input) {
  return impl_->forward(input);
}

}  // namespace ddprun
