#include "worker/parallel/forms/data/local_sgd/local_sgd.h"

#include <algorithm>

#include "common/error.h"
#include "worker/comm/operations/call.h"
#include "tests/support/catch.h"
#include "tests/unit/parallel/small_net.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

using Values = std::map<std::string, std::vector<float>>;

// Returns the average over the ranks, at every rank.
Values average(Values values, ProcessGroup& group) {
  for (auto& [name, elements] : values) group.allreduce(span_of(elements), ReduceOp::average, {.blocking = true});
  return values;
}

// A network that this rank trains by itself, on the same batches.
struct Alone {
  std::unique_ptr<nn::Module> net = make_net();
  std::unique_ptr<optim::Optimizer> optimizer = optim::make_optimizer("adam", {.lr = 0.01}, net->named_parameters());
  std::vector<std::unique_ptr<ProcessGroup>> groups = testing::make_thread_groups(1, std::chrono::seconds(30));
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

// Passes operations on, and keeps the last one.
class LastWork : public ProcessGroup {
 public:
  explicit LastWork(ProcessGroup& below) : below_(below) {}
  int rank() const override { return below_.rank(); }
  int size() const override { return below_.size(); }
  std::string_view backend() const override { return below_.backend(); }
  WorkPtr start(const comm::Call& call) override { return work = below_.start(call); }
  std::optional<Error> failure() const override { return below_.failure(); }
  void abort(const std::string& reason) override { below_.abort(reason); }

  WorkPtr work;

 private:
  ProcessGroup& below_;
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

TEST_CASE("what is evaluated and visited is the average, and ranks go on with their own parameters") {
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

TEST_CASE("the outer optimizer is SGD with Nesterov momentum over what the ranks have learnt in a period") {
  run_ranks(2, [](ProcessGroup& group) {
    Local local(group, {.period = 2, .outer = {.lr = 0.7, .momentum = 0.9}});
    const auto reference = make_net();
    const auto outer =
        optim::make_optimizer("sgd", {.lr = 0.7, .momentum = 0.9, .nesterov = true}, reference->named_parameters());
    Alone alone;
    for (int step = 0; step < 6; ++step) {
      alone.train(step, group.rank());
      local.train(step, group.rank());
      if (step % 2 == 0) continue;
      const Values mean = average(values_of(*alone.net), group);
      for (auto& [name, parameter] : reference->named_parameters()) {
        Tensor gradient = parameter.value().clone();
        for (std::int64_t i = 0; i < gradient.numel(); ++i)
          gradient.data<float>()[i] -= mean.at(name)[static_cast<std::size_t>(i)];
        Variable(parameter).set_grad_storage(Tensor::zeros(gradient.shape()));
        Variable(parameter).define_grad();
        Tensor storage = parameter.grad();
        storage.copy_from(gradient);
      }
      outer->step();
      const Values expected = values_of(*reference);
      require(nearly_equal(values_of(*local.net), expected), "the outer step");
      require(!nearly_equal(expected, mean), "more than the average");
      for (auto& [name, parameter] : alone.net->named_parameters()) {
        Tensor value = parameter.value();
        std::copy(expected.at(name).begin(), expected.at(name).end(), value.data<float>());
      }
    }
  });
}

TEST_CASE("the fragments of a model are averaged one after the other") {
  run_ranks(2, [](ProcessGroup& group) {
    Local local(group, {.period = 4, .fragments = 2});
    const auto agreed = [&] {
      const Values own = values_of(*local.net), mean = average(own, group);
      std::size_t count = 0;
      for (const auto& [name, values] : own) count += values == mean.at(name) ? 1 : 0;
      return count;
    };
    const std::vector<std::size_t> expected{0, 1, 0, 3, 0, 1};  // the first weight is more than half of the model
    for (int step = 0; step < 6; ++step) {
      local.train(step, group.rank());
      require(agreed() == expected[static_cast<std::size_t>(step)], "step " + std::to_string(step));
    }
  });
}

TEST_CASE("a delayed average meets what the rank has learnt since, by the weights given") {
  run_ranks(2, [](ProcessGroup& group) {
    Alone alone;
    Local local(group, {.period = 3, .outer = {.fragment_update_alpha = 0.25}, .fragment_sync_delay = 1});
    for (int step = 0; step < 3; ++step) {
      alone.train(step, group.rank());
      local.train(step, group.rank());
    }
    require(values_of(*local.net) == values_of(*alone.net), "the average is under way");
    Values expected = average(values_of(*alone.net), group);
    alone.train(3, group.rank());
    local.train(3, group.rank());
    const Values own = values_of(*alone.net);
    for (auto& [name, values] : expected)
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.25F * own.at(name)[i] + 0.75F * values[i];
    require(nearly_equal(values_of(*local.net), expected), "a quarter of its own");
  });
}

TEST_CASE("a rank that leaves while an average is under way is an error that names it") {
  run_ranks(2, [](ProcessGroup& group) {
    Local local(group, {.period = 3, .fragment_sync_delay = 2});
    for (int step = 0; step < 2; ++step) local.train(step, group.rank());
    if (group.rank() == 1) return;
    std::string text;
    try {
      for (int step = 2; step < 6; ++step) local.train(step, group.rank());
    } catch (const Error& e) {
      text = e.what();
    }
    require(text.find("rank 1") != std::string::npos, text);
  });
}

TEST_CASE("who ends while an average is under way waits for it") {
  run_ranks(2, [](ProcessGroup& group) {
    LastWork last(group);
    {
      Local local(last, {.period = 3, .fragment_sync_delay = 2});
      for (int step = 0; step < 3; ++step) local.train(step, group.rank());
    }
    require(last.work->done(), "the group still writes");
    require(!group.failure(), "the average has ended well");
  });
}

TEST_CASE("options that fit no period are refused") {
  run_ranks(1, [](ProcessGroup& group) {
    const auto net = make_net();
    for (const LocalSgdOptions& options :
         {LocalSgdOptions{.period = 0}, LocalSgdOptions{.period = 4, .fragments = 5},
          LocalSgdOptions{.period = 4, .fragments = 0}, LocalSgdOptions{.period = 4, .fragment_sync_delay = 4}}) {
      bool refused = false;
      try {
        LocalSgd(*net, group, options);
      } catch (const Error& e) {
        refused = e.code() == Errc::usage;
      }
      require(refused, "accepted");
    }
  });
}
