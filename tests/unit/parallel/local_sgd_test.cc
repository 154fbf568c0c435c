#include "ddprun/worker/parallel/local_sgd.h"

#include "ddprun/common/error.h"
#include "tests/support/catch.h"
#include "tests/unit/parallel/small_net.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

using Values = std::map<std::string, std::vector<float>>;

// The average over the ranks, at every rank.
Values average(Values values, ProcessGroup& group) {
  for (auto& [name, elements] : values) group.allreduce(span_of(elements), ReduceOp::average, {.blocking = true});
  return values;
}

// A network that this rank trains by itself, on the same batches.
struct Alone {
  std::unique_ptr<nn::Module> net = make_net();
  std::unique_ptr<optim::Optimizer> optimizer = optim::make_optimizer("adam", {.lr = 0.01}, net->named_parameters());
  std::vector<std::unique_ptr<ProcessGroup>> groups = comm::make_thread_groups(1, std::chrono::seconds(30));
  DistributedDataParallel ddp{*net, *groups[0]};

  void train(int step, int rank) {
    backward(ddp, step, rank);
    optimizer->step();
  }
};

struct Local {
  Local(ProcessGroup& group, LocalSgdOptions options) : local(*net, group, options) {}
  std::unique_ptr<nn::Module> net = make_net();
  std::unique_ptr<optim::Optimizer> optimizer = optim::make_optimizer("adam", {.lr = 0.01}, net->named_parameters());
  LocalSgd local;

  void train(int step, int rank) {
    backward(local, step, rank);
    optimizer->step();
    local.parameters_updated();
  }
};

}  // namespace

TEST_CASE("ranks learn by themselves until the step at which their parameters are averaged") {
  run_ranks(3, [](ProcessGroup& group) {
    Alone alone;
    Local local(group, {.period = 3});
    for (int step = 0; step < 2; ++step) {
      alone.train(step, group.rank());
      local.train(step, group.rank());
      require(values_of(*local.net) == values_of(*alone.net), "a step without the others");
    }
    alone.train(2, group.rank());
    local.train(2, group.rank());
    const Values mean = average(values_of(*alone.net), group);
    require(nearly_equal(values_of(*local.net), mean), "the average of what the ranks have learnt");
    require(!nearly_equal(values_of(*alone.net), mean), "ranks that differ");
    require(values_of(local.optimizer->state()) == values_of(alone.optimizer->state()), "a state of its own");
  });
}

TEST_CASE("local SGD that starts later averages the gradients of the steps before") {
  const Learnt whole = learn_whole(2, 3);
  run_ranks(2, [&](ProcessGroup& group) {
    Local local(group, {.ddp = {.limits = small_buckets}, .period = 2, .start_localSGD_iter = 3});
    for (int step = 0; step < 3; ++step) local.train(step, group.rank());
    require(values_of(*local.net) == whole.parameters, "as DistributedDataParallel");
    local.train(3, group.rank());
    require(!nearly_equal(values_of(*local.net), average(values_of(*local.net), group)), "the fourth step is local");
    local.train(4, group.rank());
    require(values_of(*local.net) == average(values_of(*local.net), group), "the fifth ends with an average");
  });
}

TEST_CASE("what is evaluated, visited and collected is the average, and ranks go on with their own parameters") {
  run_ranks(2, [](ProcessGroup& group) {
    Local local(group, {.period = 100});
    local.train(0, group.rank());
    const Values own = values_of(*local.net);
    const Values mean = average(own, group);
    {
      const auto evaluated = local.local.evaluated_model();
      require(values_of(*local.net) == mean, "evaluated");
    }
    require(values_of(*local.net) == own, "as before");
    local.local.collect_parameters();
    require(values_of(*local.net) == mean, "collected");
    local.local.drop_whole_parameters();
    optim::NamedTensors visited;
    local.local.visit_parameters(
        [&](const std::string& name, const Tensor& value) { visited.emplace_back(name, value.clone()); });
    require(values_of(visited) == mean, "visited");
    require(values_of(*local.net) == own, "still as before");
  });
}

TEST_CASE("running statistics are averaged with the parameters") {
  run_ranks(2, [](ProcessGroup& group) {
    Generator generator(1);
    const auto net = nn::make_model("cnn_bn", {.input = {1, 28, 28}, .outputs = 10}, generator);
    LocalSgd local(*net, group, {.period = 1});
    auto buffers = [&] {
      optim::NamedTensors all;
      for (const auto& [name, buffer] : net->named_buffers())
        if (is_floating(buffer.dtype())) all.emplace_back(name, buffer);
      return all;
    };
    for (auto& [name, buffer] : buffers()) buffer.fill(group.rank() + 1);
    local.parameters_updated();
    for (const auto& [name, values] : values_of(buffers()))
      for (const float value : values) require(value == 1.5F, name);
  });
}

TEST_CASE("a period without steps is refused") {
  run_ranks(1, [](ProcessGroup& group) {
    const auto net = make_net();
    try {
      LocalSgd(*net, group, {.period = 0});
    } catch (const Error& e) {
      return require(e.code() == Errc::usage, e.what());
    }
    throw std::runtime_error("accepted");
  });
}
