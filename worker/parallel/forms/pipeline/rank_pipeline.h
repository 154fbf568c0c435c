#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "worker/nn/module.h"
#include "worker/optim/optimizer.h"
#include "worker/parallel/forms/data_parallelism.h"
#include "worker/parallel/forms/pipeline/group_channel.h"
#include "worker/parallel/forms/pipeline/stage_executor.h"
#include "worker/parallel/forms/pipeline/tied_parameters.h"
#include "worker/parallel/forms/stage_pass.h"
#include "worker/parallel/sharding/parameter_placements.h"

namespace ddprun::pipeline {

// Releases the parameter's memory; its shape stays, and an operation that uses it is an error.
void release_memory(Variable parameter);
// Gives an absent parameter memory, filled with zeros.
void allocate_memory(Variable parameter);

// A pipeline over the ranks of a group, each with only the parameters of its stages.
//
//   DeviceMesh mesh(world->group(), {{"pipeline", 2}, {"data", mesh_rest}});
//   RankPipeline pipeline(model, cuts_at(model, {"h.2"}, 2),
//                         plan_schedule(ScheduleKind::one_forward_one_backward, {.ranks = 2, .micro_batches = 8}),
//                         mesh.group("pipeline"));
//   DistributedDataParallel ddp(model, mesh.group("data"), {.stages = pipeline.tensors_of(pipeline.group().rank())});
//   pipeline.train(step, ddp);   // adds to the gradients of pipeline.parameters(), averaged over the data ranks
//
// The constructor takes a whole model with the same parameters at all ranks. Those of other ranks' stages are absent
// from then on: an operation that uses one is an error. A parameter of this rank's stages that is absent, as another
// pipeline leaves it, gets memory.
//
// Ownership: model and group outlive this object; the model is of no use after it.
// Threads: one at a time. All ranks call the same methods in the same order.
// Errors: Errc::usage for a stage without trainable parameters; those of StageExecutor.
class RankPipeline {
 public:
  RankPipeline(nn::Module& model, const std::vector<std::size_t>& cuts, const Schedule& schedule, ProcessGroup& group);

  // Runs the forward and backward passes of a step. The gradients' average over the data ranks overlaps with the last
  // micro-batch's backward pass, or follows if a rank has several stages; data may also reduce them in every pass. It
  // has the model without names_of_other_stages().
  void train(StepFunctions step, DataParallelism& data);
  void evaluate(int micro_batch, StepFunctions step, DataParallelism& data);
  // For a rank whose neighbours do not exist (comm/backends/local/dry_group.h): finds out what its stages receive for
  // micro-batches of the input's number of samples. REQUIRES: a ShapeOnlyScope, modules in evaluation.
  void assume_inputs(const Tensor& input, DataParallelism& data);
  // To be called at the end of an evaluation.
  void finish() { channel_.finish(); }

  bool has_last_stage() const { return schedule_.rank_of(schedule_.stages - 1) == group_.rank(); }
  ProcessGroup& group() const { return group_; }
  // The parameters and buffers of this rank's stages, in the model's order.
  const optim::NamedParameters& parameters() const { return parameters_; }
  const optim::NamedTensors& buffers() const { return buffers_; }
  // The names of the parameters and buffers of other ranks' stages.
  const std::vector<std::string>& names_of_other_stages() const { return names_of_other_stages_; }
  // Returns the part of the model that the stages of a rank have.
  StageTensors tensors_of(int rank) const;
  // The ranks whose stages have this parameter or buffer.
  const std::set<int>& ranks_of(const std::string& name) const { return ranks_.at(name); }
  // All parameters and buffers on a mesh of the group; each is at its stages.
  const sharding::ParameterPlacements& placements() const { return placements_; }
  // The number of bytes sent to other stages, in all steps.
  std::uint64_t bytes_sent() const { return channel_.bytes_sent() + tied_bytes_; }
  // Total time for which stages have waited for others.
  std::chrono::nanoseconds waited() const { return channel_.waited() + waited_for_tied_; }

 private:
  void place(const nn::Module& model);
  void drop_other_stages(nn::Module& model);

  const Schedule schedule_;
  ProcessGroup& group_;
  const std::vector<Stage> stages_;
  std::map<std::string, std::set<int>> ranks_;  // by parameter or buffer
  sharding::ParameterPlacements placements_;
  const TiedParameters tied_;
  GroupChannel channel_;
  StageExecutor executor_;
  optim::NamedParameters parameters_;
  optim::NamedTensors buffers_;
  std::vector<std::string> names_of_other_stages_;
  std::uint64_t tied_bytes_ = 0;  // sent so far
  std::chrono::nanoseconds waited_for_tied_{};
};

}  // namespace ddprun::pipeline
