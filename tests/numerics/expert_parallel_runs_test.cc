// Jobs whose ranks divide the experts of a GPT, beside the same jobs at one rank.
#include "tests/numerics/layout_job.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

// The number of ranks, and how many of them divide the experts.
struct Layout {
  int ranks, expert;
};
constexpr Layout layouts[] = {{2, 2}, {4, 4}, {4, 2}};

std::string text_of(const Layout& layout) {
  return std::to_string(layout.ranks) + " ranks, parallel.expert = " + std::to_string(layout.expert);
}

class Job {
 public:
  explicit Job(const std::string& more, const std::string& model = "") : Job(TextFile(), more, model) {}

  trainer::Summary run(const Layout& layout, const std::string& train, const std::string& more = {}) const {
    return job_.run(layout.ranks, train, parallel(layout) + more);
  }
  std::vector<double> losses(const Layout& layout, const std::string& train, const std::string& more = {}) const {
    return job_.losses(layout.ranks, train, parallel(layout) + more);
  }
  std::string checkpoint_keys() const { return job_.checkpoint_keys(); }
  std::string metrics() const {
    std::ifstream file(job_.metrics());
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  Job(TextFile text, const std::string& more, const std::string& model)
      : text_(std::move(text)), job_(text_.keys({.layers = 2}) + "experts = 4\n" + model + more) {}
  static std::string parallel(const Layout& layout) {
    return layout.expert > 1 ? "expert = " + std::to_string(layout.expert) + "\n" : "";
  }

  TextFile text_;
  LayoutJob job_;
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

TEST_CASE("a GPT whose experts are divided learns as at one rank") {
  SECTION("as it is") {
    check_learns_as_one(Job(sgd));
  }
  SECTION("clipped, with one expert a token in every other block, and a loss on logits") {
    check_learns_as_one(Job(sgd + "clip_norm = 0.5\n",
                            "experts_per_token = 1\nexpert_every = 2\nrouter_z_loss = 0.01\ndropout = 0.1\n"));
  }
}

// The shares of choices in the loss are those of a micro-batch: without the loss they make no difference.
TEST_CASE("a GPT whose experts are divided learns as at one rank over micro-batches") {
  check_learns_as_one(Job(sgd, "load_balancing_loss = 0\n"), fifty_steps + "accumulate = 2\n");
}

// With 5 samples, ranks 1 to 3 of four have one and rank 0 two, and with micro-batches of one they have none for the
// second. In a pass of the others their gradients are ready bucket by bucket, between the exchanges of two layers.
TEST_CASE("ranks without samples compute their experts for the others") {
  const std::string buckets = GENERATE("", "[dist]\nbucket_mb = 0.01\n");
  CAPTURE(buckets);
  const Job job(sgd, "load_balancing_loss = 0\n");
  const std::string train = "max_steps = 20\nglobal_batch_size = 5\naccumulate = 2\ncheck_replicas = true\n";
  const auto one = job.losses({1, 1}, train);
  for (const Layout& layout : layouts) {
    INFO(text_of(layout));
    CHECK(difference(one, job.losses(layout, train, buckets), 20) < 2e-6);
  }
}

TEST_CASE("an evaluation of divided experts counts every token once") {
  const Job job(sgd + "[eval]\nevery_epochs = 1\nbatch_size = 1\n");
  const std::string train = "max_steps = 5\nglobal_batch_size = 16\n";
  const auto one = job.run({1, 1}, train);
  for (const Layout& layout : layouts)
    CHECK(std::abs(job.run(layout, train).evaluation.loss / one.evaluation.loss - 1) < 1e-6);
}

TEST_CASE("sixteen bits train divided experts about as whole ones") {
  const Job job(adamw);
  for (const std::string precision : {"bf16", "fp16"}) {
    INFO(precision);
    const std::string train =
        "max_steps = 20\nglobal_batch_size = 16\ncheck_replicas = true\nprecision = " + precision + "\n";
    const auto one = job.losses({1, 1}, train), divided = job.losses({4, 2}, train);
    CHECK(one[19] < one[0]);
    CHECK(difference(one, divided, 20) < 2e-2);
  }
}

TEST_CASE("a checkpoint goes on with any other number of ranks that divide experts") {
  const Job job(adamw);
  const std::string train = "global_batch_size = 16\nseed = 1\ncheck_replicas = true\nema = 0.9\n";
  const auto whole = job.losses({1, 1}, train + "max_steps = 20\n");
  constexpr Layout parts[] = {{2, 2}, {1, 1}, {4, 4}, {4, 2}, {2, 1}};
  std::vector<double> resumed;
  int steps = 0;
  for (const Layout& layout : parts)
    resumed = job.losses(layout, train + "max_steps = " + std::to_string(steps += 4) + "\n", job.checkpoint_keys());
  CHECK(difference(whole, resumed, 16) < 1e-4);
}

TEST_CASE("a run of divided experts that stops and goes on has the bits of one that does not") {
  const std::string train = "global_batch_size = 16\n";
  for (const Layout& layout : layouts) {
    INFO(text_of(layout));
    const Job job(adamw);
    const auto undisturbed = job.run(layout, train + "max_steps = 10\n").parameter_digest;
    job.run(layout, train + "max_steps = 4\n", job.checkpoint_keys());
    CHECK(job.run(layout, train + "max_steps = 10\n", job.checkpoint_keys()).parameter_digest == undisturbed);
  }
}

TEST_CASE("metrics tell how busy experts are, and what is dropped") {
  const Job job(sgd, "capacity_factor = 0.5\n");
  job.run({2, 2}, "max_steps = 2\nglobal_batch_size = 16\n");
  CHECK_THAT(job.metrics(), Catch::Contains("\"expert_load\": 1."));
  CHECK_THAT(job.metrics(), Catch::Contains("\"dropped\": 0.5"));  // at least half: experts take half of their share
}

TEST_CASE("what does not fit the ranks, or does not go with experts, is refused by its key") {
  const auto refusal = [](const Job& job, const Layout& layout, const std::string& more) -> std::string {
    try {
      job.run(layout, "max_steps = 1\nglobal_batch_size = 16\n", more);
    } catch (const Error& e) {
      CHECK(e.code() == Errc::usage);
      return e.what();
    }
    return "";
  };
  const Job gpt(sgd);
  CHECK(refusal(gpt, {3, 2}, "") ==
        "parallel.expert = 2: a mesh data x expert 2 needs a multiple of 2 ranks, and there are 3");
  CHECK_THAT(refusal(gpt, {3, 3}, ""),
             Catch::Contains("model.experts = 4: it has to be a multiple of parallel.expert = 3"));
  CHECK_THAT(refusal(gpt, {4, 2}, "strategy = local_sgd\n"),
             Catch::Contains("parallel.expert = 2: it does not go with parallel.strategy = local_sgd: "));
  CHECK(refusal(gpt, {4, 2}, "context = 2\nzero = 2\nshard_group = 2\n") ==
        "parallel.shard_group = 2: expected a multiple of parallel.context parallel.expert = 4");
  CHECK_THAT(refusal(gpt, {4, 2}, "zero = 2\nhook = int8\n"),
             Catch::Contains("parallel.zero = 2: it does not go with parallel.hook = int8: "));
  CHECK_THAT(refusal(gpt, {1, 1}, "strategy = data_parallel\ndevices = cpu:0 cpu:1\n"),
             Catch::Contains("model.experts = 4: it does not go with parallel.strategy = data_parallel: "));
  CHECK_THAT(refusal(Job(sgd, "experts_per_token = 5\n"), {1, 1}, ""),
             Catch::Contains("model.experts_per_token = 5: there are 4 experts"));
}
