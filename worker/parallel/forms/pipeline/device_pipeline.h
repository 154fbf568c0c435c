#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "worker/nn/module.h"
#include "worker/parallel/forms/pipeline/schedule.h"
#include "worker/parallel/forms/pipeline/stage_executor.h"
#include "worker/tensor/device.h"

namespace ddprun::pipeline {

// A pipeline over devices of one process, each with a thread of its own.
//
//   DevicePipeline pipeline(model, make_replica, {parse_device("cpu:0"), parse_device("cpu:1")},
//                           plan_schedule(ScheduleKind::one_forward_one_backward, {.ranks = 2, .micro_batches = 8}),
//                           cuts_at(model, {"h.2"}, 2));
//   pipeline.train(step);    // adds to the gradients of the model's parameters
//   optimizer.step();
//
// The model's parameters move to the devices of their stages. A piece with a parameter of another device (a tied head)
// computes with a copy, which gets the parameter's value before each step and gives its gradient back after it.
//
// Ownership: the model outlives this object; its replica is the object's.
// Threads: one at a time.
// Errors: those of the first action that fails. After an error in train() the object cannot be used. Errc::usage for
//   fewer devices than the schedule has ranks; Errc::unsupported for running statistics in a piece with a copy.
class DevicePipeline {
 public:
  // make_replica: a model with the same parameters, by name and shape; their values do not matter. Called if needed.
  using MakeReplica = std::function<std::unique_ptr<nn::Module>()>;
  DevicePipeline(nn::Module& model, const MakeReplica& make_replica, std::vector<Device> devices,
                 const Schedule& schedule, const std::vector<std::size_t>& cuts);
  ~DevicePipeline();
  DevicePipeline(const DevicePipeline&) = delete;
  DevicePipeline& operator=(const DevicePipeline&) = delete;

  // Inputs may be on any device; results of the last stage come to that of their input. A CUDA device is used only by
  // one thread: its inputs are on the host or the first device, and results stay on the last one.
  void train(const StepFunctions& step);
  // Runs all stages on the calling thread, for evaluation.
  Variable forward(const Variable& input);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::pipeline
