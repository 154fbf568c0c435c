#pragma once

#include <cstddef>
#include <memory>

#include "worker/nn/module.h"
#include "worker/parallel/forms/data/call_order.h"
#include "worker/tensor/tensor.h"

namespace ddprun {

// Is told when modules, by number, begin and end to use their parameters: in calls, and in their parts of the backward
// pass. A part that computes no gradient of the module's inputs has no end.
class UseListener {
 public:
  virtual ~UseListener() = default;
  virtual void use_begins(CallOrder::Kind kind, std::size_t user) = 0;
  virtual void use_ends(CallOrder::Kind kind, std::size_t user) = 0;
  // Returns whether the value is in the memory of the user's parameters, such as rows of an embedding.
  virtual bool is_in_parameters(std::size_t user, const Tensor& value) const = 0;
};

// Makes a hook for a module's calls. The listener outlives it and the tapes of the calls. A result in the memory of
// parameters is copied: they may be gone after the call. Threads: those of the calls. Errors: the listener's.
std::unique_ptr<nn::CallHook> make_use_hook(UseListener& listener, std::size_t user);

}  // namespace ddprun
