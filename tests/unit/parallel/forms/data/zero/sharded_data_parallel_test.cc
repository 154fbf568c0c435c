#include "worker/parallel/forms/data/zero/sharded_data_parallel.h"

#include <algorithm>
#include <cstring>

#include "common/error.h"
#include "worker/autograd/autocast.h"
#include "worker/comm/collectives.h"
#include "worker/nn/layers.h"
#include "worker/parallel/forms/data/call_order.h"
#include "worker/parallel/forms/data/zero/shard_units.h"
#include "worker/parallel/releasable_memory.h"
#include "worker/parallel/sharding/parameter_shards.h"
#include "tests/support/catch.h"
#include "tests/unit/parallel/small_net.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

using Values = std::map<std::string, std::vector<float>>;

Values whole_parameters(ShardedDataParallel& parallel) {
  Values all;
  parallel.visit_parameters([&](const std::string& name, const Tensor& value) {
    all[name] = {value.data<float>(), value.data<float>() + value.numel()};
  });
  return all;
}

void step(ShardedDataParallel& parallel, optim::Optimizer& optimizer, int number, int rank) {
  backward(parallel, number, rank);
  optimizer.step();
  parallel.parameters_updated();
}

std::vector<ShardedOptions> all_ways() {
  return {{.limits = small_buckets},
          {.limits = small_buckets, .shard_parameters = true},
          {.limits = small_buckets, .shard_parameters = true, .reshard_after_forward = false}};
}

// Returns four layers, two of which are blocks; the token embedding is the output layer too.
std::unique_ptr<nn::Module> make_gpt() {
  Generator generator(4);
  return nn::make_model("gpt",
                        {.input = {6},
                         .input_dtype = DType::int64,
                         .outputs = 11,
                         .gpt = {.layers = 3, .heads = 2, .width = 8, .context = 6}},
                        generator);
}

Variable gpt_loss(const std::function<Variable(const Variable&)>& model, int number, int rank) {
  Tensor tokens = Tensor::empty({2, 6}, DType::int64), targets = Tensor::empty({12}, DType::int64);
  Generator generator(6, static_cast<std::uint64_t>(100 * number + rank));
  for (std::int64_t i = 0; i < 12; ++i) {
    tokens.data<std::int64_t>()[i] = static_cast<std::int64_t>(generator.below(11));
    targets.data<std::int64_t>()[i] = static_cast<std::int64_t>(generator.below(11));
  }
  return cross_entropy(reshape(model(Variable(tokens)), {12, 11}), targets);
}

Values train_gpt(DataParallelism& parallel, optim::Optimizer& optimizer, int rank, DType precision = DType::float32) {
  for (int number = 0; number < 4; ++number) {
    const autograd::AutocastScope scope(precision);
    parallel.zero_grad();
    gpt_loss([&](const Variable& input) { return parallel.forward(input); }, number, rank).backward();
    optimizer.step();
    parallel.parameters_updated();
  }
  Values all;
  parallel.visit_parameters([&](const std::string& name, const Tensor& value) {
    all[name] = {value.data<float>(), value.data<float>() + value.numel()};
  });
  return all;
}

// Returns the bytes that autocast's caches have of this process.
std::size_t cast_bytes() {
  return memory_by_owner(Device{}).tensors[static_cast<std::size_t>(MemoryOwner::casts)];
}

}  // namespace

TEST_CASE("divided gradients and parameters learn what whole ones learn, and each rank keeps its share") {
  for (const int ranks : {1, 2, 3, 5}) {
    const Learnt whole = learn_whole(ranks, 4);
    for (const ShardedOptions& options : all_ways()) {
      run_ranks(ranks, [&](ProcessGroup& group) {
        const auto net = make_net();
        ShardedDataParallel parallel(*net, group, options);
        ParameterShards shards(*parallel.sharded_buckets());
        const auto optimizer = optim::make_optimizer("adam", {.lr = 0.01}, shards.parameters());
        for (int number = 0; number < 4; ++number) step(parallel, *optimizer, number, group.rank());
        require(nearly_equal(whole_parameters(parallel), whole.parameters), "parameters");
        for (const auto& [name, parameter] : net->named_parameters()) {
          require(!parameter.grad().defined(), "no whole gradient between two steps");
          require(parameter.value().storage()->is_present() == !options.shard_parameters, "a whole parameter");
        }
        std::vector<std::int64_t> own{0};
        for (const auto& [name, part] : shards.parameters()) own[0] += part.value().numel();
        allreduce(group, own);
        require(own[0] == 7 * 13 + 13 + 13 * 3 + 3, "each element is at one rank");
      });
    }
  }
}

TEST_CASE("passes add up in the parts until the gradients begin at zero") {
  for (const ShardedOptions& options : all_ways()) {
    run_ranks(2, [&](ProcessGroup& group) {
      const auto net = make_net();
      ShardedDataParallel parallel(*net, group, options);
      ParameterShards shards(*parallel.sharded_buckets());
      const auto gradients = [&] {
        Values all;
        for (const auto& [name, part] : shards.parameters())
          all[name] = {part.grad().data<float>(), part.grad().data<float>() + part.grad().numel()};
        return all;
      };
      const auto pass = [&](int number) {
        Tensor input = Tensor::full({4, 7}, 0.1 * (number + 1 + group.rank())), target = Tensor::zeros({4, 3});
        mse_loss(parallel.forward(Variable(input)), target).backward();
      };
      Values sum;
      for (const int number : {0, 1}) {
        parallel.zero_grad();
        pass(number);
        for (const auto& [name, values] : gradients()) {
          sum[name].resize(values.size());
          for (std::size_t i = 0; i < values.size(); ++i) sum[name][i] += values[i];
        }
      }
      parallel.zero_grad();
      pass(0);
      pass(1);
      require(nearly_equal(gradients(), sum), "the sum of two passes");
    });
  }
}

TEST_CASE("a rank without samples takes part in a pass") {
  for (const ShardedOptions& options : all_ways()) {
    run_ranks(3, [&](ProcessGroup& group) {
      const auto net = make_net();
      ShardedDataParallel parallel(*net, group, options);
      ParameterShards shards(*parallel.sharded_buckets());
      const auto gradients = [&](double scale) {
        Values all;
        for (const auto& [name, part] : shards.parameters())
          for (std::int64_t i = 0; i < part.grad().numel(); ++i)
            all[name].push_back(static_cast<float>(scale) * part.grad().data<float>()[i]);
        return all;
      };
      const auto pass = [&](bool has_samples, int rank) {
        parallel.zero_grad();
        if (has_samples)
          mse_loss(parallel.forward(Variable(Tensor::full({4, 7}, 0.3 * rank))), Tensor::zeros({4, 3})).backward();
        else
          parallel.join_pass();
      };
      pass(true, group.rank());
      // There are three equal gradients, then two of three.
      pass(true, 1);
      const Values all = gradients(2.0 / 3);
      for (int again = 0; again < 2; ++again) {
        pass(group.rank() != 1, 1);
        require(nearly_equal(gradients(1), all), "two thirds");
      }
    });
  }
}

TEST_CASE("a rank without samples in the first pass is told the order of the others") {
  for (const auto recompute : {nn::Recompute::none, nn::Recompute::blocks}) {
    for (ShardedOptions options : all_ways()) {
      for (const int shard_group : {0, 2}) {
        options.shard_group = shard_group;
        run_ranks(4, [&](ProcessGroup& group) {
          const auto gpt = make_gpt();
          gpt->set_recompute(recompute);
          ShardedDataParallel parallel(*gpt, group, options);
          ParameterShards shards(*parallel.sharded_buckets());
          const auto gradients_of = [&](const std::vector<int>& ranks_with_samples) {
            parallel.zero_grad();
            if (std::ranges::count(ranks_with_samples, group.rank()) > 0)
              gpt_loss([&](const Variable& input) { return parallel.forward(input); }, 0, 7).backward();
            else
              parallel.join_pass();
            Values all;
            for (const auto& [name, part] : shards.parameters())
              for (std::int64_t i = 0; i < part.grad().numel(); ++i)
                all[name].push_back(part.grad().data<float>()[i] / static_cast<float>(ranks_with_samples.size()));
            return all;
          };
          const Values first = gradients_of({1, 3});
          // Every rank knows the order now, so any ranks may be without samples.
          require(nearly_equal(gradients_of({0}), first), "one rank has samples");
          require(nearly_equal(gradients_of({0, 1, 2, 3}), first), "all have");
          require(nearly_equal(gradients_of({2, 3}), first), "two others have");
        });
      }
    }
  }
}

TEST_CASE("a first pass for which no rank has samples is refused") {
  run_ranks(2, [&](ProcessGroup& group) {
    const auto net = make_net();
    ShardedDataParallel parallel(*net, group, {.shard_parameters = true});
    std::string refusal;
    try {
      parallel.join_pass();
    } catch (const Error& e) {
      refusal = e.what();
    }
    require(refusal.find("no rank has samples for the first pass") != std::string::npos, "refused: " + refusal);
  });
}

TEST_CASE("tied weights, blocks and what is computed again learn as in one piece") {
  for (const auto recompute : {nn::Recompute::none, nn::Recompute::blocks, nn::Recompute::all}) {
    Values whole;
    run_ranks(2, [&](ProcessGroup& group) {
      const auto gpt = make_gpt();
      DistributedDataParallel ddp(*gpt, group);
      const auto optimizer = optim::make_optimizer("sgd", {.lr = 0.1, .momentum = 0.9}, gpt->named_parameters());
      const Values learnt = train_gpt(ddp, *optimizer, group.rank());
      if (group.rank() == 0) whole = learnt;
    });
    for (const ShardedOptions& options : all_ways()) {
      run_ranks(2, [&](ProcessGroup& group) {
        const auto gpt = make_gpt();
        gpt->set_recompute(recompute);
        ShardedDataParallel parallel(*gpt, group, options);
        ParameterShards shards(*parallel.sharded_buckets());
        const auto optimizer = optim::make_optimizer("sgd", {.lr = 0.1, .momentum = 0.9}, shards.parameters());
        require(nearly_equal(train_gpt(parallel, *optimizer, group.rank()), whole), "parameters");
      });
    }
  }
}

TEST_CASE("units are blocks and modules outside of them, and a tied weight is in one of them") {
  const auto gpt = make_gpt();
  const ShardUnits units = plan_units(*gpt, gpt->named_parameters());
  std::vector<std::string> paths;
  for (const auto& user : units.users) paths.push_back(user.path);
  CHECK(paths == std::vector<std::string>{"wte", "wpe", "h.0", "h.1", "h.2", "ln_f", "lm_head"});
  CHECK(units.buckets.size() == 6);
  CHECK(units.users.front().buckets == units.users.back().buckets);
  CHECK(units.users.front().buckets == std::vector<std::size_t>{5});  // its gradient is the last to be ready
}

TEST_CASE("parameters take at most a rank's part and two units at a time") {
  for (const int ranks : {1, 2, 4}) {
    run_ranks(ranks, [&](ProcessGroup& group) {
      const auto gpt = make_gpt();
      const ShardUnits units = plan_units(*gpt, gpt->named_parameters());
      std::vector<std::size_t> sizes;
      std::size_t all = 0;
      for (const Bucket& bucket : units.buckets) {
        sizes.push_back(bucket.count * size_of(bucket.dtype));
        all += sizes.back();
      }
      std::ranges::sort(sizes, std::greater<>());
      ShardedDataParallel parallel(*gpt, group, {.shard_parameters = true});
      ParameterShards shards(*parallel.sharded_buckets());
      const auto optimizer = optim::make_optimizer("sgd", {.lr = 0.1}, shards.parameters());
      parallel.take_peaks();
      train_gpt(parallel, *optimizer, group.rank());
      const std::size_t peak = parallel.take_peaks().parameters;
      const std::size_t padding = 64 * units.buckets.size();  // parts begin on borders of 16 elements
      require(peak <= all / static_cast<std::size_t>(ranks) + padding + sizes[0] + sizes[1],
              "a peak of " + std::to_string(peak));
      require(peak > all / static_cast<std::size_t>(ranks) + sizes[0], "the next unit is gathered ahead");
      const std::size_t rest = parallel.take_peaks().parameters;
      require(rest <= all / static_cast<std::size_t>(ranks) + padding, "between two steps: " + std::to_string(rest));
    });
  }
}

TEST_CASE("16-bit copies of gathered parameters come and go with these, and have the bits of whole ones'") {
  run_ranks(2, [&](ProcessGroup& group) {
    std::size_t peak[2];
    Values learnt[2];
    for (const bool sharded : {false, true}) {
      group.barrier({.blocking = true});  // the ranks are threads of one process
      const auto gpt = make_gpt();
      ShardedDataParallel parallel(*gpt, group, {.shard_parameters = sharded});
      ParameterShards shards(*parallel.sharded_buckets());
      const auto optimizer = optim::make_optimizer("sgd", {.lr = 0.1}, shards.parameters());
      const auto casts_before = cast_bytes();
      {
        const autograd::AutocastScope outer(DType::bfloat16);  // keeps the cache's copies until the check
        learnt[sharded] = train_gpt(parallel, *optimizer, group.rank(), DType::bfloat16);
        group.barrier({.blocking = true});
        require((cast_bytes() == casts_before) == sharded, "the cache has copies of whole parameters alone");
        group.barrier({.blocking = true});
      }
      peak[sharded] = parallel.take_peaks().parameters;
    }
    require(learnt[false] == learnt[true], "the same bits");

    const auto gpt = make_gpt();
    const ShardUnits units = plan_units(*gpt, gpt->named_parameters());
    std::vector<std::size_t> counts;
    std::size_t all = 0;
    for (const Bucket& bucket : units.buckets) all += counts.emplace_back(bucket.count);
    std::ranges::sort(counts, std::greater<>());
    const std::size_t part = 4 * all / 2 + 64 * units.buckets.size();
    require(peak[true] > 4 * all / 2 + 6 * counts[0], "copies are counted");
    require(peak[true] <= part + 6 * (counts[0] + counts[1]), "a peak of " + std::to_string(peak[true]));
  });
}

TEST_CASE("gradients take at most a rank's part and three buckets at a time") {
  run_ranks(2, [&](ProcessGroup& group) {
    const auto gpt = make_gpt();
    ShardedDataParallel parallel(*gpt, group, {.limits = small_buckets});
    std::size_t largest = 0, all = 0;
    for (const Bucket& bucket : parallel.sharded_buckets()->buckets) {
      all += bucket.count * 4;
      largest = std::max(largest, bucket.count * std::size_t{4});
    }
    const auto parts = parallel.take_peaks().gradients;
    require(parts < all / 2 + 64 * parallel.sharded_buckets()->buckets.size(), "parts");
    gpt_loss([&](const Variable& input) { return parallel.forward(input); }, 0, group.rank()).backward();
    const auto peak = parallel.take_peaks().gradients;
    // The tied weight is in the last bucket, and its gradient is begun by the output layer.
    require(peak > parts && peak <= parts + 4 * largest, "a peak of " + std::to_string(peak - parts));
    require(parallel.take_peaks().gradients == parts, "nothing but the parts remains");
  });
}

TEST_CASE("groups that share a model are replicas of each other") {
  const Learnt whole = learn_whole(4, 4);
  for (ShardedOptions options : all_ways()) {
    options.shard_group = 2;
    run_ranks(4, [&](ProcessGroup& group) {
      const auto net = make_net();
      ShardedDataParallel parallel(*net, group, options);
      require(parallel.shard_group().size() == 2 && parallel.replica_group()->size() == 2, "two by two");
      ParameterShards shards(*parallel.sharded_buckets());
      const auto optimizer = optim::make_optimizer("adam", {.lr = 0.01}, shards.parameters());
      for (int number = 0; number < 4; ++number) step(parallel, *optimizer, number, group.rank());
      require(nearly_equal(whole_parameters(parallel), whole.parameters), "parameters");
    });
  }
  run_ranks(4, [&](ProcessGroup& group) {
    const auto net = make_net();
    std::string refusal;
    try {
      const ShardedDataParallel parallel(*net, group, {.shard_group = 3});
    } catch (const Error& e) {
      refusal = e.what();
    }
    require(refusal.find("replicate x shard 3 needs a multiple of 3 ranks, and there are 4") != std::string::npos,
            "refused: " + refusal);
  });
}

TEST_CASE("frozen parameters stay whole, and gradients of all others are needed") {
  run_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net();
    net->parameter("fc1.bias").set_requires_grad(false);
    ShardedDataParallel parallel(*net, group, {.shard_parameters = true});
    backward(parallel, 0, group.rank());
    require(net->parameter("fc1.bias").value().storage()->is_present(), "frozen");
    require(!net->parameter("fc1.weight").value().storage()->is_present(), "divided");
  });
  run_ranks(1, [](ProcessGroup& group) {
    const auto net = make_net();
    ShardedDataParallel parallel(*net, group);
    const auto input = Variable(Tensor::zeros({4, 7}));
    const auto& first = net->module("fc1");
    parallel.forward(input);
    CHECK_THROWS_WITH(sum(const_cast<nn::Module&>(first)(reshape(input, {4, 7}))).backward(),
                      Catch::Contains("did not reach fc2.weight, fc2.bias"));
    CHECK_THROWS_WITH(parallel.forward(input), Catch::Contains("gradients are incomplete"));
  });
}

TEST_CASE("a parameter that is not gathered is refused as an operand, by the module that uses it") {
  struct Peeking : nn::Module {
    Peeking() {
      Generator generator(1);
      first = &register_module("first", std::make_unique<nn::Linear>(3, 3, generator));
    }
    Variable forward(const Variable& input) override { return add((*first)(input), first->parameter("bias")); }
    nn::Linear* first;
  };
  run_ranks(1, [](ProcessGroup& group) {
    Peeking model;
    ShardedDataParallel parallel(model, group, {.shard_parameters = true});
    CHECK_THROWS_WITH(parallel.forward(Variable(Tensor::zeros({2, 3}))), Catch::Contains("shape [3] is absent"));
  });
}

TEST_CASE("released memory has no pages and is zero when it is used again") {
  constexpr std::size_t bytes = 1 << 20;
  ReleasableMemory memory(bytes);
  CHECK(memory.resident_bytes() == 0);
  std::memset(memory.data(), 7, bytes);
  CHECK(memory.resident_bytes() == bytes);
  memory.release();
  CHECK(memory.resident_bytes() == 0);
  CHECK(memory.data()[bytes / 2] == std::byte{0});
}

TEST_CASE("a pass like the last one knows who comes next, another one does not") {
  using Kind = CallOrder::Kind;
  CallOrder order;
  const std::vector<CallOrder::Event> events{
      {Kind::forward_begins, 4}, {Kind::forward_ends, 4}, {Kind::gradient_ready, 9}, {Kind::backward_begins, 2}};
  for (const auto& event : events) {
    order.add(event);
    CHECK_FALSE(order.next_user());
  }
  order.end_pass();
  order.begin_pass();
  CHECK_FALSE(order.next_user());
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    order.add(events[i]);
    CHECK(order.next_user() == 2);
  }
  order.add(events.back());
  CHECK_FALSE(order.next_user());
  order.begin_pass();
  order.add({Kind::forward_begins, 5});
  CHECK_FALSE(order.next_user());
}
