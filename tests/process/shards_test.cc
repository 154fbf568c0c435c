#include "tests/process/recorded_training.h"
#include "tests/support/catch.h"

// train.shards: the same parameters with any number of ranks and threads, and after losses of ranks.
using namespace ddprun::testing;

namespace {

struct Model {
  const char* name;
  Words overrides;
};

// Steps of 64 samples, the last one of an epoch of 3: shards large enough for operations that divide their sums, and
// some that are empty.
Words shards_of(const Model& model, const Words& more = {}) {
  Words all{"--train.shards=8", "--train.batch_size=0", "--train.global_batch_size=64", "--data.samples=131",
            "--data.test_samples=20"};
  all.insert(all.end(), model.overrides.begin(), model.overrides.end());
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::string digest(int ranks_of_job, int threads, const Words& overrides) {
  const Training training;
  const auto result =
      Child(training.job({"--standalone", "--nproc_per_node=" + std::to_string(ranks_of_job)}, overrides),
            {{"OMP_NUM_THREADS", std::to_string(threads)}})
          .wait(bound);
  INFO(result.err);
  REQUIRE(result.code == 0);
  return parameters_of(result.out);
}

}  // namespace

TEST_CASE("with train.shards the parameters have the same bits with any number of ranks and threads") {
  const auto model = GENERATE(
      Model{"cnn", {"--model.name=cnn", "--optim.clip_norm=1"}},
      Model{"cnn, bf16", {"--model.name=cnn", "--train.precision=bf16", "--train.ema=0.9"}},
      Model{"cnn, fp16", {"--model.name=cnn", "--train.precision=fp16", "--train.loss_scale_growth_interval=3"}},
      Model{"cnn, plateau",
            {"--model.name=cnn", "--optim.schedule=plateau", "--optim.patience=0", "--optim.threshold=0.9",
             "--data.test_samples=203"}},
      Model{"mlp on two devices",
            {"--model.name=mlp", "--parallel.devices=cpu:0 cpu:1", "--parallel.split=fc2", "--optim.clip_norm=1"}},
      Model{"transformer", {"--model.name=transformer", "--model.dropout=0.1", "--train.recompute=blocks"}});
  CAPTURE(model.name);
  const auto overrides = shards_of(model);
  const auto expected = digest(1, 1, overrides);
  REQUIRE(expected.size() == 64);
  for (const int count : {2, 3, 4, 8}) {
    CAPTURE(count);
    CHECK(digest(count, 1, overrides) == expected);
  }
  for (const int count : {1, 2}) {
    CAPTURE(count);
    CHECK(digest(count, 2, overrides) == expected);
  }
  CHECK(digest(10, 1, overrides) == expected);  // two ranks have no shard
  CHECK(digest(2, 1, shards_of(model, {"--train.shards=4"})) != expected);
}

TEST_CASE("with train.shards a job that loses ranks has the parameters of one process") {
  const Words overrides{"--train.shards=8", "--train.batch_size=0", "--train.global_batch_size=40"};
  const auto expected = [&] {
    const Training training;
    return parameters_of(
        Child(training.job({"--standalone", "--nproc_per_node=1"}, recorded(training, overrides))).wait(bound).out);
  }();
  REQUIRE(expected.size() == 64);
  in_time([&] {
    const Training training;
    Child child(training.job({"--standalone", "--nproc_per_node=4", "--max_restarts=3"}, recorded(training, overrides)),
                training.marker.variables());
    for (const int rank : {1, 0, 3}) {
      wait_for_step(child, training, 10 + static_cast<std::int64_t>(recorded_steps(training).size()));
      replace(child, training, rank);
    }
    const auto result = child.wait(bound);
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK(parameters_of(result.out) == expected);
    CHECK(recorded_steps(training) == first_steps(80));
  });
}

TEST_CASE("with train.shards a run goes on with another number of ranks, with the same bits") {
  const Words overrides{"--train.shards=6", "--train.batch_size=0", "--train.global_batch_size=30"};
  const auto run = [&](const Training& training, int ranks_of_job, const Words& more) {
    Words all = overrides;
    all.insert(all.end(), more.begin(), more.end());
    const auto result =
        Child(training.job({"--standalone", "--nproc_per_node=" + std::to_string(ranks_of_job)}, all)).wait(bound);
    INFO(result.err);
    REQUIRE(result.code == 0);
    return parameters_of(result.out);
  };
  const Training whole, parts;
  const auto expected = run(whole, 2, {"--train.max_steps=40"});
  run(parts, 3, {"--train.max_steps=13"});
  run(parts, 4, {"--train.max_steps=29"});
  CHECK(run(parts, 1, {"--train.max_steps=40"}) == expected);
}

TEST_CASE("with train.shards a model whose buffers change in forward passes is refused in one line") {
  const Training training;
  const auto result =
      Child(training.job({"--standalone", "--nproc_per_node=2"}, {"--train.shards=4", "--model.name=cnn_bn"}))
          .wait(bound);
  CHECK(result.code == 2);
  CHECK(occurrences(result.err, "train.shards = 4: the model has the buffer ") == 1);
}
