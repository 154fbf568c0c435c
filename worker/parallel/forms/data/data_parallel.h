#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "worker/nn/module.h"
#include "worker/tensor/device.h"

namespace ddprun {

// Data parallelism over several devices of one process: PyTorch's DataParallel. forward() divides a batch among the
// devices, computes with a replica of the model and a thread for each, and gathers the results on the first device.
// The backward pass goes the other way: each replica computes its gradients on its own thread, which are then added to
// the model's, in the order of the devices.
//
//   DataParallel parallel(model, [] { return make_model(); }, {parse_device("cpu:0"), parse_device("cpu:1")});
//   loss(parallel.forward(inputs), targets).backward();
//   optimizer.step();    // of the model's parameters: the replicas get the new values in the next forward()
//
// That is the synchronous parameter server as well: the first device has the parameters, gradients are reduced to it,
// it updates them, and they are broadcast. A device whose part of the batch is empty computes nothing. Result and
// gradients are bit for bit those of the same replicas on one device, whatever the threads' timing. The first replica's
// buffers (running statistics) are the model's; the others begin each pass with copies of them.
//
// As in PyTorch one device has no replica: forward() calls the model.
//
// Ownership: the model, on the first device, outlives this object. It owns the replicas.
// Threads: one at a time; it has threads of its own.
// Errors: Errc::usage for no devices, and for replicas with other parameters than the model's.
class DataParallel {
 public:
  // make_replica: a model with the same parameters and buffers, by name and shape; their values do not matter.
  using MakeReplica = std::function<std::unique_ptr<nn::Module>()>;
  DataParallel(nn::Module& model, const MakeReplica& make_replica, std::vector<Device> devices);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // The first dimension of the input is the batch. A batch of n is divided as by PyTorch's chunk(): into parts of n /
  // devices, rounded up.
  Variable forward(const Variable& input);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // a tape refers to it as well
};

}  // namespace ddprun
