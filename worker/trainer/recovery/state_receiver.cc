#include "worker/trainer/recovery/state_receiver.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "common/error.h"
#include "worker/comm/collectives.h"
#include "worker/trainer/recovery/state_rest.h"
#include "worker/trainer/recovery/state_stream.h"
#include "worker/trainer/recovery/tensor_transfer.h"

namespace ddprun::trainer {
namespace {

class Receiver {
 public:
  Receiver(TrainState& state, ProcessGroup& group)
      : state_(state), group_(group), parameters_(streamed_parameters(state)) {
    for (int rank = 1; rank < group.size(); ++rank) receivers_.push_back(rank);
  }
  // The next session gives gradients memory of its own.
  ~Receiver() {
    for (auto& parameter : parameters_)
      if (parameter.variable.requires_grad()) parameter.variable.release_grad();
  }
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  void take_parameters(const StreamHeader& header) {
    if (header.first != received_ || header.end > parameters_.size())
      throw Error(Errc::protocol, "the parameters of a state come in another order");
    std::vector<Tensor> tensors;
    for (; received_ < header.end; ++received_)
      for (const auto& tensor : parameters_[received_].tensors) tensors.push_back(tensor);
    transfer_tensors(tensors, group_, receivers_);
  }

  // Parameters that have not come yet have no gradients, and are left alone.
  void make_update(const StreamHeader& header) {
    std::vector<Tensor> gradients;
    std::size_t next = 0;
    for (const auto number : header.with_gradient) {
      if (number >= received_) throw Error(Errc::protocol, "a gradient comes before its parameter");
      for (; next < number; ++next) drop_gradient(next);
      gradients.push_back(gradient_of(next++));
    }
    for (; next < received_; ++next) drop_gradient(next);
    transfer_tensors(gradients, group_, receivers_);
    state_.optimizer->set_lr(header.lr);
    state_.optimizer->set_step_count(header.step_count);
    state_.optimizer->step();
  }

  void take_buffers() {
    std::vector<Tensor> buffers;
    for (const auto& [name, buffer] : state_.model->named_buffers()) buffers.push_back(buffer);
    transfer_tensors(buffers, group_, receivers_);
  }

 private:
  Tensor gradient_of(std::size_t number) {
    auto& variable = parameters_[number].variable;
    if (!variable.grad().defined())
      variable.set_grad_storage(Tensor::empty(variable.value().shape(), variable.value().dtype()));
    return variable.grad();
  }
  void drop_gradient(std::size_t number) {
    auto& variable = parameters_[number].variable;
    if (variable.requires_grad() && variable.grad().defined()) variable.release_grad();
  }

  TrainState& state_;
  ProcessGroup& group_;
  std::vector<StreamedParameter> parameters_;
  std::vector<int> receivers_;
  std::size_t received_ = 0;
};

}  // namespace

void receive_state(TrainState& state, StepBackup& backup, ProcessGroup& group,
                   const std::function<void()>& caught_up) try {
  Receiver receiver(state, group);
  bool told = false;
  while (true) {
    const auto header = decode_stream_header(broadcast_bytes(group, "", 0));
    switch (header.kind) {
      case StreamHeader::Kind::idle:
        break;
      case StreamHeader::Kind::parameters:
        receiver.take_parameters(header);
        break;
      case StreamHeader::Kind::update:
        receiver.make_update(header);
        break;
      case StreamHeader::Kind::rest:
        receiver.take_buffers();
        return take_rest(decode_state_rest(header.rest), state, backup, "the state of the run");
    }
    if (header.caught_up && !std::exchange(told, true)) caught_up();
  }
} catch (const Error& error) {
  if (error.code() != Errc::timeout) throw;
  throw Error(Errc::connection_lost, error.what());
}

}  // namespace ddprun::trainer
