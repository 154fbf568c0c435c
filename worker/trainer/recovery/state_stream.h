#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "worker/autograd/variable.h"
#include "worker/tensor/tensor.h"
#include "worker/trainer/state/train_state.h"

// The messages by which a StateSender gives receive_state() the state of a run that goes on: a header, which all ranks
// get, and the tensors that follow it (transfer_tensors()).
namespace ddprun::trainer {

// A parameter of the model, its value, and the optimizer's state of it.
struct StreamedParameter {
  Variable variable;
  std::vector<Tensor> tensors;  // the value first

  std::size_t bytes() const;
};
// Returns those of the whole model, in its order.
std::vector<StreamedParameter> streamed_parameters(const TrainState& state);

struct StreamHeader {
  enum class Kind : std::uint8_t {
    idle,        // nothing follows: the sender is still there
    parameters,  // the tensors of parameters [first, end) follow
    update,      // the gradients of some parameters follow: the optimizer makes a step of these
    rest,        // the buffers follow; the state is complete
  };
  Kind kind = Kind::idle;
  std::size_t first = 0, end = 0;
  std::int64_t step_count = 0;  // the optimizer's, before the update
  double lr = 0;
  std::vector<std::size_t> with_gradient;  // the parameters, in order
  bool caught_up = false;                  // nothing else waits to be sent
  std::string rest;                        // a StateRest

  friend bool operator==(const StreamHeader&, const StreamHeader&) = default;
};

std::string encode(const StreamHeader& header);
// Throws Errc::protocol.
StreamHeader decode_stream_header(std::string_view text);

}  // namespace ddprun::trainer
