// Jobs whose ranks divide the positions of each sample, beside the same jobs at one rank.
#include "tests/numerics/layout_job.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

// The number of ranks, and how many of them have the same samples.
struct Layout {
  int ranks, context;
};
constexpr Layout layouts[] = {{2, 2}, {4, 4}, {4, 2}};

std::string text_of(const Layout& layout) {
  return std::to_string(layout.ranks) + " ranks, parallel.context = " + std::to_string(layout.context);
}

class Job {
 public:
  explicit Job(const std::string& more, int context = 32) : Job(TextFile(), more, context) {}

  trainer::Summary run(const Layout& layout, const std::string& train, const std::string& more = {}) const {
    return job_.run(layout.ranks, train, parallel(layout) + more);
  }
  std::vector<double> losses(const Layout& layout, const std::string& train, const std::string& more = {}) const {
    return job_.losses(layout.ranks, train, parallel(layout) + more);
  }
  std::string checkpoint_keys() const { return job_.checkpoint_keys(); }

 private:
  Job(TextFile text, const std::string& more, int context)
      : text_(std::move(text)), job_(text_.keys({.context = context, .layers = 2}) + more) {}
  static std::string parallel(const Layout& layout) {
    return layout.context > 1 ? "context = " + std::to_string(layout.context) + "\n" : "";
  }

  TextFile text_;
  LayoutJob job_;
};

const std::string fifty_steps = "max_steps = 50\nglobal_batch_size = 16\ncheck_replicas = true\n";

void check_learns_as_one(const Job& job, const std::string& train = fifty_steps, const std::string& more = {}) {
  const auto one = job.losses({1, 1}, train);
  CHECK(one[49] < one[0]);
  for (const Layout& layout : layouts) {
    INFO(text_of(layout) << ' ' << more);
    const auto divided = job.losses(layout, train, more);
    CHECK(difference(one, divided, 10) < 1e-6);
    CHECK(difference(one, divided, 50) < 1e-5);
  }
}

}  // namespace

TEST_CASE("a GPT whose positions are divided learns as at one rank") {
  SECTION("as it is") {
    check_learns_as_one(Job(sgd));
  }
  SECTION("with dropout, also of attention's weights") {
    check_learns_as_one(Job("dropout = 0.2\n" + sgd));
  }
  SECTION("clipped, over micro-batches whose blocks are computed again") {
    check_learns_as_one(Job(sgd + "clip_norm = 0.5\n"), fifty_steps + "accumulate = 2\nrecompute = blocks\n");
  }
}

TEST_CASE("a GPT whose positions and state are divided learns as at one rank") {
  for (const std::string zero : {"zero = 1\n", "zero = 2\n", "zero = 3\nshard_group = 2\n"})
    check_learns_as_one(Job(sgd), fifty_steps, zero);
}

TEST_CASE("sixteen bits train a GPT whose positions are divided about as a whole one") {
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

// With 4,183 tokens the last sample has 22 targets: with 64 positions a rank of four has none of them. With 32 there
// are 131 samples, of which one of two groups of ranks has one more.
TEST_CASE("an evaluation counts every position once") {
  const int context = GENERATE(32, 64);
  const Job job(sgd + "[eval]\nevery_epochs = 1\nbatch_size = 1\n", context);
  const std::string train = "max_steps = 5\nglobal_batch_size = 16\n";
  const auto one = job.run({1, 1}, train);
  for (const Layout& layout : layouts)
    for (const std::string more : {"", "zero = 3\n"}) {
      INFO(text_of(layout) << ' ' << more);
      CHECK(std::abs(job.run(layout, train, more).evaluation.loss / one.evaluation.loss - 1) < 1e-6);
    }
}

TEST_CASE("a checkpoint goes on with any other number of ranks that divide positions") {
  const Job job(adamw);
  const std::string train = "global_batch_size = 16\nseed = 1\ncheck_replicas = true\n";
  const auto whole = job.losses({1, 1}, train + "max_steps = 20\n");
  const std::pair<Layout, const char*> parts[] = {
      {{2, 2}, ""}, {{1, 1}, ""}, {{4, 4}, ""}, {{4, 2}, "zero = 3\n"}, {{2, 2}, ""}};
  std::vector<double> resumed;
  int steps = 0;
  for (const auto& [layout, parallel] : parts)
    resumed = job.losses(layout, train + "max_steps = " + std::to_string(steps += 4) + "\n",
                         parallel + job.checkpoint_keys());
  CHECK(difference(whole, resumed, 20) < 1e-4);
}

TEST_CASE("a run of divided positions that stops and goes on has the bits of one that does not") {
  const std::string train = "global_batch_size = 16\n";
  for (const Layout& layout : layouts) {
    INFO(text_of(layout));
    const Job job(adamw);
    const auto undisturbed = job.run(layout, train + "max_steps = 10\n").parameter_digest;
    job.run(layout, train + "max_steps = 4\n", job.checkpoint_keys());
    CHECK(job.run(layout, train + "max_steps = 10\n", job.checkpoint_keys()).parameter_digest == undisturbed);
  }
}

TEST_CASE("what does not fit the ranks, or does not go with divided positions, is refused by its key") {
  const auto refusal = [](const auto& job, const Layout& layout, const std::string& more) -> std::string {
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
        "parallel.context = 2: a mesh data x context 2 needs a multiple of 2 ranks, and there are 3");
  CHECK_THAT(refusal(gpt, {3, 3}, ""),
             Catch::Contains("data.context = 32: it has to be a multiple of 2 parallel.context = 6"));
  for (const std::string each : {"strategy = local_sgd", "strategy = parameter_server", "devices = cpu:0 cpu:1"})
    CHECK_THAT(refusal(gpt, {4, 2}, each + "\n"),
               Catch::Contains("parallel.context = 2: it does not go with parallel." + each.substr(0, each.find(' '))));
  class Linear : public LayoutJob {
   public:
    Linear() : LayoutJob(digits + "[model]\nname = linear\n" + sgd) {}
    trainer::Summary run(const Layout& layout, const std::string& train, const std::string&) const {
      return LayoutJob::run(layout.ranks, train, "context = " + std::to_string(layout.context) + "\n");
    }
  };
  CHECK_THAT(refusal(Linear(), {2, 2}, ""),
             Catch::Contains("parallel.context = 2: the model needs causal attention: model.name = gpt"));
}
