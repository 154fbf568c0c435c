#include "worker/parallel/forms/pipeline/device_pipeline.h"

#include <algorithm>
#include <utility>

#include "common/error.h"
#include "worker/autograd/ops/shape.h"
#include "worker/parallel/forms/pipeline/device_channel.h"
#include "worker/parallel/thread_local_state.h"
#include "worker/tensor/device_threads.h"
#include "worker/tensor/kernels.h"

namespace ddprun::pipeline {
namespace {

using NamedParameters = std::vector<std::pair<std::string, Variable>>;

// A parameter of the model, and its copy on another device.
struct Copy {
  Variable own, copy;

  void take_value() {
    Tensor value = copy.value();
    value.copy_from(own.value().to(copy.device()));
    value.storage()->bump_version();
  }
  void give_gradient() {
    if (!copy.grad().defined()) return;
    if (!own.grad().defined()) own.set_grad_storage(Tensor::zeros_like(own.value()));
    Tensor sum = own.grad();
    kernels::add_in_place(sum, copy.grad().to(own.device()));
  }
};

NamedParameters parameters_of(const nn::Module::Piece& piece) {
  NamedParameters all;
  for (const nn::Module* module : piece.modules)
    for (auto& each : module->named_parameters()) all.push_back(std::move(each));
  return all;
}

}  // namespace

class DevicePipeline::Impl {
 public:
  Impl(nn::Module& model, const MakeReplica& make_replica, std::vector<Device> devices, const Schedule& schedule,
       const std::vector<std::size_t>& cuts)
      : model_(model), devices_(std::move(devices)), schedule_(schedule), threads_(devices_.size()) {
    if (std::ssize(devices_) != schedule.ranks)
      throw make_error(Errc::usage, "{} devices are given for a pipeline of {}", devices_.size(), schedule.ranks);
    stages_ = make_stages(model, cuts);
    std::size_t piece = 0;
    for (Stage& stage : stages_)
      for (auto& each : stage.pieces) place(each, piece++, device_of(stage), make_replica);
    for (std::size_t k = 0; k < devices_.size(); ++k) add_executor(static_cast<int>(k));
  }

  void train(const StepFunctions& given) {
    for (Copy& copy : copies_) {
      copy.take_value();
      if (copy.copy.requires_grad()) copy.copy.zero_grad();
    }
    follow_mode();
    StepFunctions step = given;
    step.input = [&](int m) { return to_device(given.input(m), devices_.front()); };
    step.loss = [&](int m, const Variable& result) {
      const bool stays = result.device().type == DeviceType::cuda;
      return given.loss(m, stays ? result : to_device(result, given.input(m).device()));
    };
    run(step);
    for (Copy& copy : copies_) copy.give_gradient();
  }

  Variable forward(const Variable& input) {
    for (Copy& copy : copies_) copy.take_value();
    follow_mode();
    Variable value = input;
    for (const Stage& stage : stages_) value = stage(to_device(value, device_of(stage)));
    return to_device(value, input.device());
  }

 private:
  Device device_of(const Stage& stage) const {
    return devices_[static_cast<std::size_t>(schedule_.rank_of(stage.number))];
  }

  // Places a piece on the device, unless it has a parameter that another device has already.
  void place(nn::Module::Piece& piece, std::size_t index, Device device, const MakeReplica& make_replica) {
    const auto own = parameters_of(piece);
    const bool is_tied = std::ranges::any_of(own, [&](const auto& each) {
      return std::ranges::any_of(placed_, [&](const Variable& other) { return other.is(each.second); }) &&
             each.second.device() != device;
    });
    if (is_tied)
      copy_piece(piece, index, device, make_replica);
    else
      for (nn::Module* module : piece.modules) module->to(device);
    for (const auto& [name, parameter] : own) placed_.push_back(parameter);
  }

  void copy_piece(nn::Module::Piece& piece, std::size_t index, Device device, const MakeReplica& make_replica) {
    for (const nn::Module* module : piece.modules)
      if (!module->named_buffers().empty())
        throw make_error(Errc::unsupported, "pipeline: {} has a parameter of another device, and running statistics",
                         piece.name);
    if (!replica_) {
      replica_ = make_replica();
      replica_pieces_ = replica_->pieces();
    }
    auto& other = replica_pieces_.at(index);
    const auto from = parameters_of(piece), to = parameters_of(other);
    if (!std::ranges::equal(from, to, [](const auto& a, const auto& b) {
          return a.first == b.first && a.second.shape() == b.second.shape();
        }))
      throw Error(Errc::usage, "pipeline: the replica has other parameters than the model");
    for (nn::Module* module : other.modules) module->to(device);
    for (std::size_t p = 0; p < from.size(); ++p) {
      Variable copy = to[p].second;
      copy.set_requires_grad(from[p].second.requires_grad());
      // The storage is set as for other parameters, whose gradients of 16 bits are added up in 32 from the first on.
      if (copy.requires_grad()) copy.set_grad_storage(Tensor::zeros_like(copy.value()));
      copies_.push_back({from[p].second, copy});
    }
    piece = other;
  }

  void add_executor(int rank) {
    std::vector<Stage> own;
    for (const Stage& stage : stages_)
      if (schedule_.rank_of(stage.number) == rank) own.push_back(stage);
    channels_.push_back(std::make_unique<DeviceChannel>(exchange_, rank, devices_[static_cast<std::size_t>(rank)]));
    executors_.push_back(std::make_unique<StageExecutor>(schedule_, rank, std::move(own), *channels_.back()));
  }

  void follow_mode() {
    for (auto& piece : replica_pieces_)
      for (nn::Module* module : piece.modules) module->train(model_.training());
  }

  void run(const StepFunctions& step) {
    const ThreadLocalState state;
    threads_.run([&](std::size_t k) {
      try {
        const ThreadLocalStateGuard guard(state);
        executors_[k]->train(step);
      } catch (...) {
        exchange_.fail(std::current_exception());
      }
    });
    exchange_.rethrow_failure();
  }

  nn::Module& model_;
  std::unique_ptr<nn::Module> replica_;
  std::vector<nn::Module::Piece> replica_pieces_;
  const std::vector<Device> devices_;
  const Schedule schedule_;
  std::vector<Stage> stages_;
  std::vector<Variable> placed_;
  std::vector<Copy> copies_;
  DeviceExchange exchange_;
  std::vector<std::unique_ptr<DeviceChannel>> channels_;
  std::vector<std::unique_ptr<StageExecutor>> executors_;
  DeviceThreads threads_;
};

DevicePipeline::DevicePipeline(nn::Module& model, const MakeReplica& make_replica, std::vector<Device> devices,
                               const Schedule& schedule, const std::vector<std::size_t>& cuts)
    : impl_(std::make_unique<Impl>(model, make_replica, std::move(devices), schedule, cuts)) {}
DevicePipeline::~DevicePipeline() = default;

void DevicePipeline::train(const StepFunctions& step) {
  impl_->train(step);
}
Variable DevicePipeline::forward(const Variable& input) {
  return impl_->forward(input);
}

}  // namespace ddprun::pipeline
