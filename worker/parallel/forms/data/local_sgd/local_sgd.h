#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/nn/module.h"
#include "worker/parallel/forms/data/distributed_data_parallel.h"
#include "worker/parallel/forms/data/local_sgd/fragment.h"
#include "worker/parallel/forms/data/local_sgd/fragment_schedule.h"
#include "worker/parallel/forms/data/own_tensors.h"
#include "worker/parallel/forms/data_parallelism.h"

namespace ddprun {

// Options with PyTorch's names: PostLocalSGDState and PeriodicModelAverager, and those of torchft's DiLoCo.
struct LocalSgdOptions {
  DdpOptions ddp;
  std::int64_t period = 4;               // optimizer steps from one average to the next
  std::int64_t start_localSGD_iter = 0;  // optimizer steps before that, in which gradients are averaged as by DDP
  OuterOptions outer;                    // DiLoCo: the use of the average
  std::int64_t fragments = 1;            // parts of the model that are averaged one after the other within a period
  std::int64_t fragment_sync_delay = 0;  // optimizer steps from the beginning of an average to its use
};

// Local SGD (Stich 2019) and post-local SGD (Lin et al. 2020): each rank steps by its own gradients, and every so many
// steps the ranks' parameters are replaced by their average. Between two averages the ranks' models differ, and nothing
// is communicated. The state of the optimizer stays each rank's own.
//
//   LocalSgd local(model, group, {.period = 20});
//   local.zero_grad();
//   loss(local.forward(inputs), targets).backward();   // this rank's own gradients
//   optimizer->step();
//   local.parameters_updated();                        // each 20th time: the average
//
// With outer.lr and outer.momentum this is DiLoCo (Douillard et al. 2023), with fragments and their delay its streaming
// form (Douillard et al. 2025), in which averages are computed beside the steps.
//
// The model that is evaluated, saved and visited is the average of the ranks' parameters. Running statistics are
// averaged like parameters.
//
// Ownership: model and group outlive this object. Threads: one at a time. All ranks make the same sequence of steps.
// Errors: those of the group. The constructor throws Errc::usage for a period below 1, more fragments than steps in a
// period, a delay as long as a period, and where DDP's constructor does.
class LocalSgd final : public DataParallelism {
 public:
  LocalSgd(nn::Module& model, ProcessGroup& group, const LocalSgdOptions& options);

  Variable forward(const Variable& input) override;
  void prepare_forward() override;
  void join_pass() override { ddp_.join_pass(); }
  void join_backward() override { ddp_.join_backward(); }
  std::shared_ptr<void> hold_reduction() override { return ddp_.hold_reduction(); }
  bool ranks_differ() const override { return true; }
  ProcessGroup& shard_group() const override { return group_; }

  void zero_grad() override;
  void parameters_updated() override;
  // Buffers stay each rank's own: those of the evaluated model are averages.
  void sync_buffers() override {}

  std::shared_ptr<void> evaluated_model() override;
  void visit_parameters(const Visitor& visit) override;
  void parameters_restored() override;

  // Returns this rank's own parameters and buffers, the number of its steps, and the state of its fragments.
  std::vector<HookState> hook_state() override;

  std::chrono::nanoseconds waited() const override { return ddp_.waited() + averaging_; }
  std::chrono::nanoseconds starting() const override { return ddp_.starting(); }
  void record_transfers(std::vector<Transfer>* into) override { ddp_.record_transfers(into); }

 private:
  class Average;

  Fragment& fragment(std::int64_t index) { return fragments_[static_cast<std::size_t>(index)]; }
  void restart();
  void average();
  template <class Function>
  void timed(Function function);

  nn::Module& model_;
  ProcessGroup& group_;
  const LocalSgdOptions options_;
  DistributedDataParallel ddp_;
  const std::vector<Fragment::Member> averaged_;  // trainable parameters, and buffers of floating point
  const OwnTensors counters_;
  const FragmentSchedule schedule_;
  std::vector<Fragment> fragments_;
  std::int64_t steps_ = 0;       // the number of those that have been made
  std::shared_ptr<void> local_;  // exists while gradients stay local
  std::chrono::nanoseconds averaging_{};
};

}  // namespace ddprun
