// Jobs whose layers are divided among ranks, beside the same jobs at one rank.
#include "tests/numerics/layout_job.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

// The number of ranks, and how many of them compute the layers together.
struct Layout {
  int ranks, tensor;
};
constexpr Layout layouts[] = {{2, 2}, {4, 4}, {4, 2}};

std::string text_of(const Layout& layout) {
  return std::to_string(layout.ranks) + " ranks, parallel.tensor = " + std::to_string(layout.tensor);
}

class Job : public LayoutJob {
 public:
  using LayoutJob::LayoutJob;

  trainer::Summary run(const Layout& layout, const std::string& train, const std::string& more = {}) const {
    const std::string parallel = layout.tensor > 1 ? "tensor = " + std::to_string(layout.tensor) + "\n" : "";
    return LayoutJob::run(layout.ranks, train, parallel + more);
  }
  std::vector<double> losses(const Layout& layout, const std::string& train, const std::string& more = {}) const {
    run(layout, train, more);
    return losses_in(metrics());
  }
};

class GptJob : public Job {
 public:
  explicit GptJob(const std::string& more) : GptJob(TextFile(), more) {}

 private:
  GptJob(TextFile text, const std::string& more)
      : Job(text.keys({.context = 32, .layers = 2}) + more), text_(std::move(text)) {}
  TextFile text_;
};

const std::string fifty_steps = "max_steps = 50\nglobal_batch_size = 16\ncheck_replicas = true\n";

void check_learns_as_one(const Job& job, const std::string& train = fifty_steps, const std::string& more = {}) {
  const auto one = job.losses({1, 1}, train);
  CHECK(one[49] < one[0]);
  for (const Layout& layout : layouts) {
    INFO(text_of(layout));
    const auto divided = job.losses(layout, train, more);
    CHECK(difference(one, divided, 10) < 1e-6);
    CHECK(difference(one, divided, 50) < 1e-5);
  }
}

}  // namespace

TEST_CASE("a GPT whose layers are divided learns as at one rank") {
  SECTION("without dropout") {
    check_learns_as_one(GptJob(sgd));
  }
  SECTION("with dropout") {
    check_learns_as_one(GptJob("dropout = 0.1\n" + sgd));
  }
  SECTION("clipped, over micro-batches whose blocks are computed again") {
    check_learns_as_one(GptJob("dropout = 0.1\n" + sgd + "clip_norm = 0.5\n"),
                        fifty_steps + "accumulate = 2\nrecompute = blocks\n");
  }
}

TEST_CASE("a GPT whose layers and positions are divided learns as at one rank") {
  check_learns_as_one(GptJob("dropout = 0.1\n" + sgd + "clip_norm = 0.5\n"),
                      fifty_steps + "accumulate = 2\nrecompute = blocks\n", "sequence = true\n");
}

TEST_CASE("an MLP whose layers are divided learns as at one rank") {
  check_learns_as_one(Job(digits + "[model]\nname = mlp\nhidden = 32 16\ndropout = 0.2\n" + sgd + "clip_norm = 1\n"));
}

TEST_CASE("a CNN whose linear layers are divided learns as at one rank") {
  const Job job(digits + "[model]\nname = cnn_bn\n[optim]\nname = sgd\nlr = 0.01\n");
  const auto one = job.losses({2, 1}, "max_steps = 10\nglobal_batch_size = 16\n");
  CHECK(difference(one, job.losses({4, 2}, "max_steps = 10\nglobal_batch_size = 16\ncheck_replicas = true\n"), 10) <
        1e-6);
}

TEST_CASE("sixteen bits train a divided GPT about as a whole one") {
  const GptJob job(adamw);
  for (const std::string precision : {"bf16", "fp16"}) {
    INFO(precision);
    const std::string train =
        "max_steps = 20\nglobal_batch_size = 16\ncheck_replicas = true\nprecision = " + precision + "\n";
    const auto one = job.losses({1, 1}, train), divided = job.losses({4, 2}, train);
    CHECK(one[19] < one[0]);
    CHECK(difference(one, divided, 20) < 2e-2);
  }
}

TEST_CASE("gradients of divided layers are averaged in 16 bits as those of whole ones") {
  const GptJob job(sgd);
  const std::string train = "max_steps = 10\nglobal_batch_size = 16\ncheck_replicas = true\n";
  const auto exact = job.losses({4, 2}, train);
  for (const std::string hook : {"hook = fp16\n", "hook = bf16\n"}) {
    INFO(hook);
    const auto whole = job.losses({2, 1}, train, hook), divided = job.losses({4, 2}, train, hook);
    CHECK(difference(whole, divided, 10) < 1e-6);
    CHECK(difference(exact, divided, 10) > 1e-7);
  }
}

TEST_CASE("fp16 skips a step at all ranks where a divided gradient overflows") {
  const GptJob job(adamw);
  const std::string train =
      "max_steps = 12\nglobal_batch_size = 16\ncheck_replicas = true\nprecision = fp16\nloss_scale = 1e12\n";
  const auto one = job.losses({1, 1}, train), divided = job.losses({2, 2}, train);
  CHECK(difference(one, divided, 12) < 2e-2);
}

TEST_CASE("an evaluation of a divided GPT is that of a whole one") {
  const GptJob job(sgd + "[eval]\nevery_epochs = 1\n");
  const std::string train = "max_steps = 5\nglobal_batch_size = 16\n";
  const auto one = job.run({1, 1}, train);
  for (const Layout& layout : layouts) {
    INFO(text_of(layout));
    CHECK(std::abs(job.run(layout, train).evaluation.loss / one.evaluation.loss - 1) < 1e-6);
  }
}

TEST_CASE("a checkpoint of one layout goes on under any other") {
  const GptJob job("dropout = 0.1\n" + adamw);
  const std::string train = "global_batch_size = 16\nseed = 1\ncheck_replicas = true\n";
  const auto whole = job.losses({1, 1}, train + "max_steps = 24\n");
  const std::pair<Layout, const char*> parts[] = {{{2, 2}, ""}, {{1, 1}, ""},           {{4, 4}, ""},
                                                  {{4, 2}, ""}, {{2, 1}, "zero = 3\n"}, {{2, 2}, ""}};
  std::vector<double> resumed;
  int steps = 0;
  for (const auto& [layout, parallel] : parts)
    resumed = job.losses(layout, train + "max_steps = " + std::to_string(steps += 4) + "\n",
                         parallel + job.checkpoint_keys());
  CHECK(difference(whole, resumed, 24) < 1e-4);
}

TEST_CASE("a divided run that stops and goes on has the bits of one that does not") {
  const std::string train = "global_batch_size = 16\n";
  for (const Layout& layout : layouts) {
    INFO(text_of(layout));
    const GptJob job("dropout = 0.1\n" + adamw);
    const auto undisturbed = job.run(layout, train + "max_steps = 10\n").parameter_digest;
    const std::string checkpoint = job.checkpoint_keys();
    job.run(layout, train + "max_steps = 4\n", checkpoint);
    CHECK(job.run(layout, train + "max_steps = 10\n", checkpoint).parameter_digest == undisturbed);
  }
}

TEST_CASE("the digest is that of the whole model, whatever the layout") {
  const GptJob job(sgd);
  const std::string train = "global_batch_size = 16\nmax_steps = 3\n";
  const std::string checkpoint = job.checkpoint_keys();
  const auto written = job.run({4, 2}, train, checkpoint).parameter_digest;
  for (const Layout& layout : {Layout{1, 1}, Layout{2, 2}, Layout{4, 4}})
    CHECK(job.run(layout, train, checkpoint).parameter_digest == written);  // resumes at its end
}

TEST_CASE("what does not fit the ranks, or does not go with divided layers, is refused by its key") {
  const auto refusal = [](const Job& job, const Layout& layout, const std::string& more) -> std::string {
    try {
      job.run(layout, "max_steps = 1\nglobal_batch_size = 16\n", more);
    } catch (const Error& e) {
      CHECK(e.code() == Errc::usage);
      return e.what();
    }
    return "";
  };
  const GptJob gpt(sgd);
  CHECK(refusal(gpt, {3, 2}, "") ==
        "parallel.tensor = 2: a mesh data x tensor 2 needs a multiple of 2 ranks, and there are 3");
  CHECK(refusal(gpt, {8, 8}, "") ==
        "parallel.tensor = 8: module h.0.attn: 4 heads are no multiple of 8 tensor-parallel ranks");
  CHECK_THAT(refusal(gpt, {2, 2}, "devices = cpu:0 cpu:1\n"), Catch::Contains("it does not go with parallel.devices"));
  CHECK_THAT(refusal(gpt, {2, 1}, "sequence = true\n"), Catch::Contains("it needs parallel.tensor"));
  CHECK(refusal(gpt, {4, 1}, "zero = 2\nshard_group = 3\n") ==
        "parallel.shard_group = 3: a mesh replicate x shard 3 needs a multiple of 3 ranks, and there are 4");
  const Job linear(digits + "[model]\nname = linear\n" + sgd);
  CHECK(refusal(linear, {2, 2}, "") ==
        "parallel.tensor = 2: model linear has no layers that tensor parallelism divides");
}
