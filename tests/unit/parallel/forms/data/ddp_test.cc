#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <optional>
#include <string>

#include "common/error.h"
#include "worker/autograd/autocast.h"
#include "worker/autograd/ops.h"
#include "worker/comm/collectives.h"
#include "worker/comm/subgroups.h"
#include "worker/nn/layers.h"
#include "worker/nn/models.h"
#include "worker/optim/optimizer.h"
#include "worker/parallel/forms/data/distributed_data_parallel.h"
#include "worker/parallel/forms/data/sync_batch_norm.h"
#include "worker/tensor/memory_owner.h"
#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"

using namespace ddprun;
using ddprun::testing::run_ranks;

namespace {

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

std::vector<float> values(const Tensor& tensor) {
  return {tensor.data<float>(), tensor.data<float>() + tensor.numel()};
}

// Two layers, the second of which may be left out of the forward pass, and one buffer.
class Net : public nn::Module {
 public:
  explicit Net(std::uint64_t seed, std::int64_t hidden = 6) {
    Generator generator(seed);
    first_ = &register_module("first", std::make_unique<nn::Linear>(4, hidden, generator));
    second_ = &register_module("second", std::make_unique<nn::Linear>(hidden, 1, generator));
    mean = register_buffer("mean", Tensor::full({3}, static_cast<double>(seed))).value();
  }
  Variable forward(const Variable& input) override {
    const Variable hidden = (*first_)(input);
    return skip_second ? hidden : (*second_)(relu(hidden));
  }

  bool skip_second = false;
  Tensor mean;

 private:
  nn::Linear* first_;
  nn::Linear* second_;
};

Tensor batch(std::uint64_t stream, std::int64_t size, std::int64_t width) {
  Generator generator(7, stream);
  Tensor result = Tensor::empty({size, width});
  fill_normal(result, 0, 1, generator);
  return result;
}

Variable loss_of(const Variable& output, std::uint64_t stream) {
  return mse_loss(output, batch(100 + stream, output.shape()[0], output.shape()[1]));
}

// Returns the mean over all streams of the gradients that each gives alone.
std::vector<std::vector<float>> mean_gradients(std::uint64_t seed, int streams) {
  std::vector<std::vector<float>> sums;
  for (int stream = 0; stream < streams; ++stream) {
    Net net(seed);
    const auto at = static_cast<std::uint64_t>(stream);
    loss_of(net(Variable(batch(at, 5, 4))), at).backward();
    std::size_t index = 0;
    for (const auto& [name, parameter] : net.named_parameters()) {
      const auto gradient = values(parameter.grad());
      if (index == sums.size()) sums.emplace_back(gradient.size());
      for (std::size_t i = 0; i < gradient.size(); ++i) sums[index][i] += gradient[i];
      ++index;
    }
  }
  for (auto& sum : sums) {
    for (auto& value : sum) value /= static_cast<float>(streams);
  }
  return sums;
}

void require_gradients(const Net& net, const std::vector<std::vector<float>>& expected) {
  std::size_t index = 0;
  for (const auto& [name, parameter] : net.named_parameters()) {
    const auto gradient = values(parameter.grad());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      // Sums of a few float32 products in another order differ by some units in the last place.
      const float tolerance = 1e-6f + 1e-5f * std::abs(expected[index][i]);
      require(std::abs(gradient[i] - expected[index][i]) <= tolerance, name);
    }
    ++index;
  }
}

}  // namespace

TEST_CASE("all ranks begin with rank 0's parameters and buffers") {
  const Net original(10);
  run_ranks(3, [&](ProcessGroup& group) {
    Net net(10 + static_cast<std::uint64_t>(group.rank()));
    const DistributedDataParallel ddp(net, group);
    const auto expected = original.named_parameters();
    const auto actual = net.named_parameters();
    for (std::size_t p = 0; p < expected.size(); ++p) {
      require(values(actual[p].second.value()) == values(expected[p].second.value()), expected[p].first);
    }
    require(values(net.mean) == std::vector<float>(3, 10.0f), "buffer");
  });
}

TEST_CASE("without init_sync the ranks begin with their own parameters and buffers") {
  run_ranks(2, [](ProcessGroup& group) {
    const auto seed = 10 + static_cast<std::uint64_t>(group.rank());
    const Net original(seed);
    Net net(seed);
    const DistributedDataParallel ddp(net, group, {.init_sync = false});
    const auto expected = original.named_parameters();
    const auto actual = net.named_parameters();
    for (std::size_t p = 0; p < actual.size(); ++p)
      require(values(actual[p].second.value()) == values(expected[p].second.value()), actual[p].first);
    require(values(net.mean) == values(original.mean), "mean");
  });
}

TEST_CASE("buckets count as gradients as long as they are there, casts as casts") {
  run_ranks(1, [](ProcessGroup& group) {
    const auto held = [](MemoryOwner owner) {
      const OwnedMemory all = memory_by_owner(Device{});
      const auto i = static_cast<std::size_t>(owner);
      return all.tensors[i] + all.claims[i];
    };
    const std::size_t gradients = held(MemoryOwner::gradients), casts = held(MemoryOwner::casts);
    {
      Net net(1);
      std::size_t bytes = 0;
      for (const auto& [name, parameter] : net.named_parameters()) bytes += parameter.value().bytes();
      const DistributedDataParallel ddp(net, group);
      require(held(MemoryOwner::gradients) >= gradients + bytes, "buckets");
      const autograd::AutocastScope precision(DType::bfloat16);
      net(Variable(batch(1, 5, 4)));
      require(held(MemoryOwner::casts) > casts, "casts");
    }
    require(held(MemoryOwner::gradients) == gradients && held(MemoryOwner::casts) == casts, "what is left");
  });
}

TEST_CASE("backward returns with the mean of all ranks' gradients, pass after pass") {
  for (const int size : {1, 2, 3}) {
    const auto expected = mean_gradients(1, size);
    run_ranks(size, [&](ProcessGroup& group) {
      Net net(1);
      DistributedDataParallel ddp(net, group, {.limits = {.first_bytes = 16, .bytes = 64}});
      const auto stream = static_cast<std::uint64_t>(group.rank());
      for (int pass = 0; pass < 3; ++pass) {
        net.zero_grad();
        loss_of(ddp.forward(Variable(batch(stream, 5, 4))), stream).backward();
        require_gradients(net, expected);
      }
    });
  }
}

TEST_CASE("a module with several inputs and outputs gets the mean gradients of all its roots") {
  // Two inputs pass through one net each; the outputs are roots of one pass.
  struct Pair : nn::Module {
    Pair() {
      left = &register_module("left", std::make_unique<Net>(1));
      right = &register_module("right", std::make_unique<Net>(2));
    }
    std::vector<Variable> forward_all(const std::vector<Variable>& in) override {
      return {(*left)(in.at(0)), (*right)(in.at(1))};
    }
    Net *left, *right;
  };
  const auto left = mean_gradients(1, 2), right = mean_gradients(2, 2);
  run_ranks(2, [&](ProcessGroup& group) {
    Pair pair;
    DistributedDataParallel ddp(pair, group);
    const auto stream = static_cast<std::uint64_t>(group.rank());
    const Variable input(batch(stream, 5, 4));
    const auto outputs = ddp.forward(std::vector{input, input});
    backward({loss_of(outputs.at(0), stream), loss_of(outputs.at(1), stream)});
    require_gradients(*pair.left, left);
    require_gradients(*pair.right, right);
  });
}

TEST_CASE("under no_sync gradients stay local, and the pass after it reduces the sum") {
  auto expected = mean_gradients(1, 4);
  for (auto& gradient : expected) {
    for (auto& value : gradient) value *= 2;  // two micro-batches a rank
  }
  run_ranks(2, [&](ProcessGroup& group) {
    Net net(1);
    DistributedDataParallel ddp(net, group);
    const auto stream = static_cast<std::uint64_t>(2 * group.rank());
    {
      const auto local = ddp.no_sync();
      loss_of(ddp.forward(Variable(batch(stream, 5, 4))), stream).backward();
    }
    std::vector<float> bias = values(net.named_parameters()[3].second.grad());
    const auto mine = bias;
    allreduce(group, bias, ReduceOp::max);
    std::vector<float> least = mine;
    allreduce(group, least, ReduceOp::min);
    require(bias != least, "the ranks' gradients differ under no_sync");
    loss_of(ddp.forward(Variable(batch(stream + 1, 5, 4))), stream + 1).backward();
    require_gradients(net, expected);
  });
}

TEST_CASE("a model that differs is refused before anything is broadcast, naming parameter, shapes and rank") {
  std::mutex mutex;
  std::vector<std::string> messages;
  run_ranks(3, [&](ProcessGroup& group) {
    Net net(5 + static_cast<std::uint64_t>(group.rank()), group.rank() == 2 ? 7 : 6);
    const auto before = values(net.named_parameters()[0].second.value());
    try {
      const DistributedDataParallel ddp(net, group);
    } catch (const Error& error) {
      require(error.code() == Errc::mismatch, "mismatch");
      const std::lock_guard lock(mutex);
      messages.emplace_back(error.what());
    }
    require(values(net.named_parameters()[0].second.value()) == before, "nothing was broadcast");
  });
  REQUIRE(messages.size() == 3);
  for (const auto& message : messages) {
    INFO(message);
    CHECK(message.find("\"first.weight: float32 [6, 4]\" at rank 0") != std::string::npos);
    CHECK(message.find("\"first.weight: float32 [7, 4]\" at rank 2") != std::string::npos);
  }
}

TEST_CASE("a parameter that the loss does not depend on comes out of backward, by name") {
  run_ranks(2, [](ProcessGroup& group) {
    Net net(1);
    DistributedDataParallel ddp(net, group);
    net.skip_second = true;
    const Variable loss = loss_of(ddp.forward(Variable(batch(0, 5, 4))), 0);
    try {
      loss.backward();
      require(false, "no error");
    } catch (const Error& error) {
      require(std::string(error.what()).find("second.weight, second.bias") != std::string::npos, error.what());
    }
    try {
      ddp.forward(Variable(batch(0, 5, 4)));
      require(false, "no error");
    } catch (const Error& error) {
      require(error.code() == Errc::usage, "usage");
    }
  });
}

TEST_CASE("with find_unused_parameters a rank may leave parameters out") {
  run_ranks(2, [](ProcessGroup& group) {
    Net net(1);
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    net.skip_second = group.rank() == 0;
    loss_of(ddp.forward(Variable(batch(0, 5, 4))), 0).backward();
    const auto gradient = values(net.named_parameters()[2].second.grad());
    require(gradient != std::vector<float>(gradient.size()), "rank 1's share has arrived");
  });
}

TEST_CASE("a parameter that no rank uses has no gradient, so momentum and weight decay do not move it") {
  run_ranks(2, [](ProcessGroup& group) {
    Net net(1);
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    const auto parameters = net.named_parameters();
    const auto sgd = optim::make_optimizer("sgd", {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.5}, parameters);
    const auto step = [&] {
      loss_of(ddp.forward(Variable(batch(0, 5, 4))), 0).backward();
      sgd->step();
      sgd->zero_grad();
    };
    step();  // both layers are used: momentum is not zero afterwards
    const auto before = values(parameters[2].second.value());
    const auto used_before = values(parameters[0].second.value());
    net.skip_second = true;
    step();
    require(!parameters[2].second.grad().defined(), "no gradient");
    require(values(parameters[2].second.value()) == before, "second.weight has not moved");
    require(values(parameters[0].second.value()) != used_before, "first.weight has moved");
    net.skip_second = group.rank() == 0;
    loss_of(ddp.forward(Variable(batch(0, 5, 4))), 0).backward();
    require(parameters[2].second.grad().defined(), "one rank's use is enough, at both ranks");
    sgd->step();
    require(values(parameters[2].second.value()) != before, "second.weight moves again");
  });
}

TEST_CASE("a parameter that is used under no_sync alone has a gradient") {
  run_ranks(2, [](ProcessGroup& group) {
    Net net(1);
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    if (group.rank() == 1) {
      const auto local = ddp.no_sync();
      loss_of(ddp.forward(Variable(batch(0, 5, 4))), 0).backward();
    }
    net.skip_second = true;
    loss_of(ddp.forward(Variable(batch(0, 5, 4))), 0).backward();
    const Tensor& gradient = net.named_parameters()[2].second.grad();
    require(gradient.defined(), "defined");
    require(values(gradient) != std::vector<float>(values(gradient).size()), "rank 1's share has arrived");
  });
}

TEST_CASE("a rank that joins a pass without samples gets the others' gradients, divided by the number of ranks") {
  auto expected = mean_gradients(1, 1);
  for (auto& gradient : expected) {
    for (auto& value : gradient) value /= 2;
  }
  for (const bool find_unused : {false, true}) {
    run_ranks(2, [&](ProcessGroup& group) {
      Net net(1);
      DistributedDataParallel ddp(net, group,
                                  {.limits = {.first_bytes = 16, .bytes = 64}, .find_unused_parameters = find_unused});
      for (int pass = 0; pass < 2; ++pass) {
        net.zero_grad();
        if (group.rank() == 0)
          loss_of(ddp.forward(Variable(batch(0, 5, 4))), 0).backward();
        else
          ddp.join_pass();
        require_gradients(net, expected);
      }
    });
  }
}

TEST_CASE("with static_graph unused parameters are found in the first pass, and a pass that differs is an error") {
  run_ranks(2, [](ProcessGroup& group) {
    Net net(1);
    DistributedDataParallel ddp(net, group, {.limits = {.first_bytes = 16, .bytes = 64}, .static_graph = true});
    net.skip_second = true;
    const auto parameters = net.named_parameters();
    std::vector<float> before;
    for (int pass = 0; pass < 3; ++pass) {
      net.zero_grad();
      loss_of(ddp.forward(Variable(batch(static_cast<std::uint64_t>(group.rank()), 5, 4))), 0).backward();
      require(!parameters[2].second.grad().defined(), "second.weight has no gradient");
      const auto gradient = values(parameters[0].second.grad());
      if (pass > 0) require(gradient == before, "the same average again");
      before = gradient;
      auto greatest = gradient;
      allreduce(group, greatest, ReduceOp::max);
      require(greatest == gradient, "the same at both ranks");
    }
    net.skip_second = false;
    try {
      loss_of(ddp.forward(Variable(batch(0, 5, 4))), 0).backward();
      require(false, "no error");
    } catch (const Error& error) {
      require(std::string(error.what()).find("reached second.") != std::string::npos, error.what());
    }
  });
}

TEST_CASE("with static_graph a parameter that one rank uses has a gradient at all, in every pass") {
  run_ranks(2, [](ProcessGroup& group) {
    Net net(1);
    DistributedDataParallel ddp(net, group, {.static_graph = true});
    net.skip_second = group.rank() == 0;
    for (int pass = 0; pass < 3; ++pass) {
      net.zero_grad();
      loss_of(ddp.forward(Variable(batch(0, 5, 4))), 0).backward();
      const Tensor& gradient = net.named_parameters()[2].second.grad();
      require(gradient.defined(), "defined");
      require(values(gradient) != std::vector<float>(values(gradient).size()), "rank 1's share has arrived");
    }
  });
}

TEST_CASE("with static_graph a rank may join the first pass without samples") {
  run_ranks(2, [](ProcessGroup& group) {
    Net net(1);
    DistributedDataParallel ddp(net, group, {.static_graph = true});
    for (int pass = 0; pass < 3; ++pass) {
      net.zero_grad();
      if (pass == 0 && group.rank() == 1)
        ddp.join_pass();
      else
        loss_of(ddp.forward(Variable(batch(0, 5, 4))), 0).backward();
      auto gradient = values(net.named_parameters()[2].second.grad());
      const auto own = gradient;
      allreduce(group, gradient, ReduceOp::max);
      require(gradient == own, "the same at both ranks");
    }
  });
}

TEST_CASE("ignored parameters and buffers stay each rank's own") {
  run_ranks(2, [](ProcessGroup& group) {
    Net net(10 + static_cast<std::uint64_t>(group.rank()));
    DistributedDataParallel ddp(net, group, {.ignored_parameters = {"second.weight", "mean"}});
    const Net own(10 + static_cast<std::uint64_t>(group.rank())), first(10);
    const auto parameters = net.named_parameters();
    require(values(parameters[2].second.value()) == values(own.named_parameters()[2].second.value()), "own weight");
    require(values(parameters[0].second.value()) == values(first.named_parameters()[0].second.value()), "rank 0's");
    loss_of(ddp.forward(Variable(batch(static_cast<std::uint64_t>(group.rank()), 5, 4))), 0).backward();
    require(values(net.mean) == values(own.mean), "own buffer");
    for (const std::size_t p : {0, 2}) {
      const auto gradient = values(parameters[p].second.grad());
      auto greatest = gradient, least = gradient;
      allreduce(group, greatest, ReduceOp::max);
      allreduce(group, least, ReduceOp::min);
      require((greatest == least) == (p == 0), parameters[p].first);
    }
  });
}

TEST_CASE("a model is evaluated and visited with rank 0's ignored parameters and unshared buffers") {
  run_ranks(2, [](ProcessGroup& group) {
    const auto stream = 10 + static_cast<std::uint64_t>(group.rank());
    Net net(stream);
    DistributedDataParallel ddp(net, group, {.broadcast_buffers = false, .ignored_parameters = {"second.weight"}});
    const Net own(stream), first(10);
    require(ddp.own_parameters() == std::vector<std::string>{"second.weight"}, "own parameters");
    net.mean.fill(static_cast<float>(group.rank()));
    const auto weight = [](const Net& of) { return values(of.named_parameters()[2].second.value()); };
    {
      const auto evaluated = ddp.evaluated_model();
      require(weight(net) == weight(first), "rank 0's weight");
      require(values(net.mean)[0] == 0, "rank 0's buffer");
    }
    ddp.visit_parameters([&](const std::string& name, const Tensor& value) {
      if (name == "second.weight") require(values(value) == weight(first), "visited");
    });
    require(weight(net) == weight(own), "own weight");
    require(values(net.mean)[0] == static_cast<float>(group.rank()), "own buffer");
    std::vector<std::string> names;
    for (const auto& state : ddp.hook_state()) names.push_back(state.name);
    require(names == std::vector<std::string>{"own/second.weight", "own/mean"}, "for a checkpoint");
  });
}

TEST_CASE("buffers are copied in the first pass of a step, whether or not it is reduced") {
  run_ranks(2, [](ProcessGroup& group) {
    Net net(1);
    DistributedDataParallel ddp(net, group);
    const auto is_copied = [&] {
      net.mean.fill(static_cast<float>(group.rank() + 1));
      loss_of(ddp.forward(Variable(batch(0, 5, 4))), 0).backward();
      return values(net.mean)[0] == 1;
    };
    for (int step = 0; step < 3; ++step) {
      {
        const auto local = ddp.no_sync();
        require(is_copied(), "the first pass");
        require(is_copied() == (group.rank() == 0), "the second");
      }
      require(is_copied() == (group.rank() == 0), "the last, which is reduced");
    }
    require(is_copied(), "a step of one pass");
    {
      const auto local = ddp.no_sync();
      if (group.rank() == 0) {
        require(is_copied(), "rank 0's");
      } else {
        net.mean.fill(7);
        ddp.join_pass();
        require(values(net.mean)[0] == 1, "a rank without samples");
      }
    }
  });
}

TEST_CASE("delayed parameters are reduced after all others, once the gradient they wait for is ready") {
  for (const std::string until : {"", "first.bias", "first.weight"}) {
    const auto expected = mean_gradients(1, 2);
    run_ranks(2, [&](ProcessGroup& group) {
      Net net(1);
      DistributedDataParallel ddp(net, group,
                                  {.limits = {.first_bytes = 16, .bytes = 64},
                                   .delay_all_reduce_named_params = {"second.weight", "second.bias"},
                                   .param_to_hook_all_reduce = until});
      std::vector<std::string> order;
      ddp.register_comm_hook([&](const GradBucket& bucket) {
        for (const auto& slice : bucket.slices) order.emplace_back(slice.name);
        return group.allreduce(bucket.span, ReduceOp::average);
      });
      const auto stream = static_cast<std::uint64_t>(group.rank());
      for (int pass = 0; pass < 2; ++pass) {
        net.zero_grad();
        order.clear();
        loss_of(ddp.forward(Variable(batch(stream, 5, 4))), stream).backward();
        require_gradients(net, expected);
        require(order == std::vector<std::string>{"first.bias", "first.weight", "second.bias", "second.weight"} ||
                    order == std::vector<std::string>{"first.weight", "first.bias", "second.bias", "second.weight"},
                "the delayed ones are last");
      }
    });
  }
}

TEST_CASE("options that name what the model does not have are refused") {
  run_ranks(1, [](ProcessGroup& group) {
    const auto message = [&](const DdpOptions& options) {
      Net net(1);
      try {
        const DistributedDataParallel ddp(net, group, options);
      } catch (const Error& error) {
        require(error.code() == Errc::usage, "usage");
        return std::string(error.what());
      }
      return std::string("no error");
    };
    require(
        message({.ignored_parameters = {"third"}}) == "ignored_parameters: the model has no parameter or buffer third",
        "ignored");
    require(message({.delay_all_reduce_named_params = {"mean"}}) ==
                "delay_all_reduce_named_params: mean is no parameter whose gradients are averaged",
            "delayed");
    require(message({.param_to_hook_all_reduce = "x"}).starts_with("param_to_hook_all_reduce: x"), "until");
  });
}

TEST_CASE("the ranks of a subgroup average among themselves") {
  const auto both = mean_gradients(1, 2);
  run_ranks(3, [&](ProcessGroup& world) {
    const auto pair = subgroup(world, {2, 0});
    if (!pair) return;
    Net net(1);
    DistributedDataParallel ddp(net, *pair);
    const auto stream = static_cast<std::uint64_t>(pair->rank());
    loss_of(ddp.forward(Variable(batch(stream, 5, 4))), stream).backward();
    require_gradients(net, both);
  });
}

TEST_CASE("a registered hook decides what backward returns") {
  run_ranks(2, [](ProcessGroup& group) {
    Net net(1);
    DistributedDataParallel ddp(net, group);
    ddp.register_comm_hook([&](const GradBucket& bucket) { return group.allreduce(bucket.span, ReduceOp::max); });
    loss_of(ddp.forward(Variable(batch(static_cast<std::uint64_t>(group.rank()), 5, 4))), 0).backward();
    Net alone(1);
    loss_of(alone(Variable(batch(static_cast<std::uint64_t>(group.rank()), 5, 4))), 0).backward();
    auto greatest = values(alone.named_parameters()[0].second.grad());
    allreduce(group, greatest, ReduceOp::max);
    require(values(net.named_parameters()[0].second.grad()) == greatest, "the greatest of both");
  });
}

namespace {

constexpr std::array<int, 3> uneven_batches{10, 7, 3};  // by rank

Variable loss_of_batch(Variable output, int rank, int number) {
  return loss_of(output, static_cast<std::uint64_t>(100 * rank + number));
}
Variable input_of_batch(int rank, int number) {
  return Variable(batch(static_cast<std::uint64_t>(100 * rank + number), 5, 4));
}

// Returns the first parameters of one process, instead of all ranks, after all batches.
std::vector<float> uneven_reference(bool divide_by_initial_world_size) {
  Net net(1);
  const auto sgd = optim::make_optimizer("sgd", {.lr = 0.1}, net.named_parameters());
  for (int n = 0; n < uneven_batches[0]; ++n) {
    const auto active = std::ranges::count_if(uneven_batches, [&](int batches) { return n < batches; });
    const auto divisor = divide_by_initial_world_size ? 3.0 : static_cast<double>(active);
    for (int r = 0; r < active; ++r) mul(loss_of_batch(net(input_of_batch(r, n)), r, n), 1 / divisor).backward();
    sgd->step();
    sgd->zero_grad();
  }
  return values(net.named_parameters()[0].second.value());
}

}  // namespace

TEST_CASE("ranks with 10, 7 and 3 batches end with the parameters of all batches, with either divisor") {
  for (const bool by_all : {true, false}) {
    const auto expected = uneven_reference(by_all);
    // The shift decides which rank has which number of batches: the last ones are ranks 0, 1 and 2 in turn.
    for (const int shift : {0, 1, 2}) {
      run_ranks(3, [&](ProcessGroup& group) {
        const int r = (group.rank() + shift) % 3;
        Net net(1);
        DistributedDataParallel ddp(net, group, {.limits = {.first_bytes = 16, .bytes = 64}});
        const auto sgd = optim::make_optimizer("sgd", {.lr = 0.1}, net.named_parameters());
        net.mean.fill(group.rank());
        ddp.join(
            [&] {
              for (int n = 0; n < uneven_batches[static_cast<std::size_t>(r)]; ++n) {
                loss_of_batch(ddp.forward(input_of_batch(r, n)), r, n).backward();
                sgd->step();
                sgd->zero_grad();
              }
            },
            {.divide_by_initial_world_size = by_all});
        const auto found = values(net.named_parameters()[0].second.value());
        for (std::size_t i = 0; i < found.size(); ++i)
          require(std::abs(found[i] - expected[i]) < 1e-5f, "parameters of all batches");
        auto greatest = found, least = found;
        allreduce(group, greatest, ReduceOp::max);
        allreduce(group, least, ReduceOp::min);
        require(greatest == least, "the same at all ranks");
      });
    }
  }
}

TEST_CASE("within join() buffers are those of a rank that has inputs, and the step after it begins with rank 0's") {
  run_ranks(2, [](ProcessGroup& group) {
    Net net(1);
    DistributedDataParallel ddp(net, group);
    const int r = group.rank();
    ddp.join([&] {
      for (int n = 0; n < 1 + r; ++n) {
        net.zero_grad();
        net.mean.fill(10 * r + n);
        loss_of_batch(ddp.forward(input_of_batch(r, n)), r, n).backward();
        require(values(net.mean)[0] == (n == 0 ? 0 : 11), "the first rank that has inputs");
      }
      const auto local = ddp.no_sync();
      ddp.forward(input_of_batch(r, 5));
    });
    require(values(net.mean)[0] == 11, "the rank that was among the last");
    net.mean.fill(r);
    ddp.forward(input_of_batch(r, 6));
    require(values(net.mean)[0] == 0, "the step after it");
  });
}

TEST_CASE("with throw_on_early_termination all ranks learn that one has no more inputs") {
  run_ranks(3, [](ProcessGroup& group) {
    Net net(1);
    DistributedDataParallel ddp(net, group);
    int passes = 0;
    try {
      ddp.join(
          [&] {
            for (int n = 0; n < uneven_batches[static_cast<std::size_t>(group.rank())]; ++n) {
              net.zero_grad();
              loss_of_batch(ddp.forward(input_of_batch(group.rank(), n)), group.rank(), n).backward();
              ++passes;
            }
          },
          {.throw_on_early_termination = true});
      require(false, "no error");
    } catch (const Error& error) {
      require(error.code() == Errc::usage, error.what());
      require(std::string(error.what()).starts_with("1 of 3 ranks have no more inputs"), error.what());
    }
    require(passes == 3, "until the first rank ran out");
  });
}

TEST_CASE("a training forward begins with rank 0's buffers, an evaluation does not") {
  run_ranks(2, [](ProcessGroup& group) {
    Net net(1);
    DistributedDataParallel ddp(net, group);
    net.mean.fill(group.rank());
    net.train(false);
    ddp.forward(Variable(batch(0, 5, 4)));
    require(values(net.mean)[0] == static_cast<float>(group.rank()), "evaluation");
    net.train();
    ddp.forward(Variable(batch(0, 5, 4)));
    require(values(net.mean)[0] == 0, "training");
  });
}

namespace {

// Returns the mean losses over all ranks of 20 steps of ResNet-18, whose batch norms use their stored statistics, or
// those of all ranks' samples. They are in double: in float32 the order of sums, which changes with the number of
// threads, moves a value across zero at some step, and relu passes the difference on.
std::vector<double> resnet_losses(int ranks, bool synchronized) {
  constexpr std::int64_t global_batch = 8;
  constexpr std::uint64_t steps = 20;
  std::vector<std::vector<double>> losses(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](ProcessGroup& group) {
    Generator generator(3);
    const auto model = nn::make_model("resnet18", {.input = {3, 8, 8}, .channels = 8}, generator);
    model->to(DType::float64);
    model->train(synchronized);
    DistributedDataParallel ddp(*model, group);
    std::optional<SyncBatchNorm> sync;
    if (synchronized && ranks > 1) sync.emplace(*model, group);
    const auto optimizer = optim::make_optimizer("sgd", {.lr = 0.005}, model->named_parameters());
    const std::int64_t share = global_batch / group.size();
    for (std::uint64_t step = 0; step < steps; ++step) {
      Generator data(11, step % 4);
      Tensor images = Tensor::empty({global_batch, 3, 8, 8}, DType::float64);
      fill_normal(images, 0, 1, data);
      Tensor labels = Tensor::empty({global_batch}, DType::int64);
      for (std::int64_t i = 0; i < global_batch; ++i)
        labels.data<std::int64_t>()[i] = static_cast<std::int64_t>(data.below(10));
      const Tensor own = images.slice(0, group.rank() * share, share);
      const Tensor targets = labels.slice(0, group.rank() * share, share);
      const Variable loss = cross_entropy(ddp.forward(Variable(own)), targets);
      loss.backward();
      optimizer->step();
      optimizer->zero_grad();
      std::vector<double> sum{loss.value().item()};
      allreduce(group, sum);
      losses[static_cast<std::size_t>(group.rank())].push_back(sum[0] / group.size());
    }
  });
  return losses[0];
}

}  // namespace

TEST_CASE("a ResNet with frozen statistics learns with two ranks as with one") {
  const auto one = resnet_losses(1, false), two = resnet_losses(2, false);
  REQUIRE(one.size() == two.size());
  for (std::size_t step = 0; step < one.size(); ++step) {
    INFO("step " << step);
    CHECK(two[step] == Approx(one[step]).epsilon(1e-10));
  }
  CHECK(one.back() < one[3]);  // the samples are the same
}

TEST_CASE("with batch norm over all ranks a ResNet learns with two and four ranks as with one") {
  const auto one = resnet_losses(1, true);
  for (const int ranks : {2, 4}) {
    const auto shared = resnet_losses(ranks, true);
    REQUIRE(one.size() == shared.size());
    for (std::size_t step = 0; step < one.size(); ++step) {
      INFO(ranks << " ranks, step " << step);
      CHECK(shared[step] == Approx(one[step]).epsilon(1e-10));
    }
  }
  CHECK(one.back() < one[3]);  // the samples are the same
}

TEST_CASE("batch norm over all ranks has the statistics and gradients of the whole batch, and ends with its object") {
  // The shares have unequal sizes.
  const Tensor whole = batch(1, 6, 3), weights = batch(2, 6, 3);
  nn::BatchNorm reference(3);
  const Variable input(whole.clone(), true);
  sum(mul(reference(input), Variable(weights))).backward();
  const auto expected = values(input.grad());
  run_ranks(2, [&](ProcessGroup& group) {
    const std::int64_t first = group.rank() == 0 ? 0 : 2, count = group.rank() == 0 ? 2 : 4;
    nn::BatchNorm norm(3);
    const Variable own(whole.slice(0, first, count).clone(), true);
    {
      const SyncBatchNorm sync(norm, group);
      sum(mul(norm(own), Variable(weights.slice(0, first, count).clone()))).backward();
    }
    const auto gradient = values(own.grad());
    for (std::size_t i = 0; i < gradient.size(); ++i)
      require(std::abs(gradient[i] - expected[i + static_cast<std::size_t>(first) * 3]) < 1e-5f, "gradient");
    for (const std::size_t b : {0, 1}) {
      const auto mine = values(norm.named_buffers()[b].second), all = values(reference.named_buffers()[b].second);
      for (std::size_t c = 0; c < mine.size(); ++c) require(std::abs(mine[c] - all[c]) < 1e-6f, "running statistics");
    }
    if (group.rank() == 0) norm(Variable(whole.clone()));  // only rank 0: no exchange that the other would have to join
  });
}
