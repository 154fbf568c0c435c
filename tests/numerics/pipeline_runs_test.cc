// Jobs whose model is cut into stages, on several ranks or devices, beside the same jobs with a whole model.
#include "tests/numerics/layout_job.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

struct Layout {
  int ranks;
  std::string parallel;  // lines of [parallel]; a step has 16 samples over all data ranks
};

const Layout whole{1, ""};

Layout ranks(int pipeline, const std::string& schedule, int data = 1) {
  return {pipeline * data, "pipeline = " + std::to_string(pipeline) + "\nmicro_batches = " + std::to_string(4 / data) +
                               "\nschedule = " + schedule +
                               "\nvirtual_stages = " + (schedule == "interleaved" ? "2\n" : "1\n")};
}

Layout devices(const std::string& schedule, int data = 1) {
  return {data, "devices = cpu:0 cpu:1\nmicro_batches = " + std::to_string(4 / data) + "\nschedule = " + schedule +
                    "\nvirtual_stages = " + (schedule == "interleaved" ? "2\n" : "1\n")};
}

const Layout layouts[] = {ranks(2, "gpipe"),          ranks(2, "1f1b"),
                          ranks(2, "zero_bubble"),    ranks(2, "interleaved"),
                          ranks(4, "gpipe"),          ranks(4, "1f1b"),
                          ranks(4, "zero_bubble"),    ranks(2, "1f1b", 2),
                          ranks(2, "interleaved", 2), devices("gpipe"),
                          devices("zero_bubble"),     devices("interleaved"),
                          devices("1f1b", 2),         {1, "devices = cpu:1 cpu:0\nmicro_batches = 4\n"}};

class Job : public LayoutJob {
 public:
  using LayoutJob::LayoutJob;

  // A whole model gets the micro-batches of a pipeline by train.accumulate.
  trainer::Summary run(const Layout& layout, const std::string& train, const std::string& more = {}) const {
    const std::string batch =
        layout.parallel.empty() ? "global_batch_size = 16\naccumulate = 4\n" : "global_batch_size = 16\n";
    return LayoutJob::run(layout.ranks, batch + train, layout.parallel + more);
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
  GptJob(TextFile text, const std::string& more) : Job(text.keys({}) + more), text_(std::move(text)) {}
  TextFile text_;
};

void check_learns_as_whole(const Job& job, const std::string& train = "") {
  const auto one = job.losses(whole, train + "max_steps = 50\n");
  CHECK(one[49] < one[0]);
  for (const Layout& layout : layouts) {
    INFO(layout.ranks << " ranks\n" << layout.parallel);
    CHECK(difference(one, job.losses(layout, train + "max_steps = 10\ncheck_replicas = true\n"), 10) < 1e-6);
  }
  CHECK(difference(one, job.losses(ranks(4, "1f1b"), train + "max_steps = 50\n"), 50) < 1e-5);
}

const std::string few_digits = "[data]\nname = digits\nsamples = 100\ntest_samples = 30\n";

}  // namespace

TEST_CASE("a GPT in stages learns as a whole one") {
  SECTION("without dropout") {
    check_learns_as_whole(GptJob(sgd));
  }
  SECTION("with dropout") {
    check_learns_as_whole(GptJob("dropout = 0.1\n" + sgd));
  }
  SECTION("clipped, with blocks computed again") {
    check_learns_as_whole(GptJob("dropout = 0.1\n" + sgd + "clip_norm = 0.5\n"), "recompute = blocks\n");
  }
}

TEST_CASE("a CNN in stages learns as a whole one, also from fewer samples at the end of an epoch") {
  check_learns_as_whole(Job(few_digits + "[model]\nname = cnn\n" + sgd), "epochs = 20\n");
}

// Running statistics go to all data ranks before a step, whether they have samples for it or not.
TEST_CASE("a data rank of a pipeline without samples takes part in a step of a model with running statistics") {
  const Job job("[data]\nname = digits\nsamples = 33\ntest_samples = 10\n[model]\nname = cnn_bn\n" + sgd);
  for (const std::string schedule : {"1f1b", "interleaved"}) {
    INFO(schedule);
    const Layout layout = ranks(2, schedule, 2);
    const auto summary = job.run(layout, "epochs = 2\ncheck_replicas = true\n");  // steps of 16, 16 and 1 samples
    CHECK(summary.steps == 6);
  }
}

// The first step of all has samples for one rank alone, which says in which order it computes.
TEST_CASE("a data rank of a pipeline without samples takes part in a step with divided gradients and parameters") {
  for (const std::string data : {"samples = 33\n", "samples = 1\n"}) {
    const Job job("[data]\nname = digits\ntest_samples = 10\n" + data + "[model]\nname = cnn\n" + sgd);
    const auto one = job.losses(whole, "epochs = 2\n");
    for (const std::string schedule : {"gpipe", "1f1b", "interleaved", "zero_bubble"})
      for (const std::string zero : {"zero = 2\n", "zero = 3\n", "zero = 3\nreshard_after_forward = false\n"}) {
        INFO(data << schedule << ' ' << zero);
        CHECK(difference(one, job.losses(ranks(2, schedule, 2), "epochs = 2\n", zero), one.size()) < 1e-6);
      }
  }
}

TEST_CASE("sixteen bits train stages about as a whole model") {
  const GptJob job(adamw);
  for (const std::string precision : {"bf16", "fp16"}) {
    INFO(precision);
    const std::string train = "max_steps = 20\ncheck_replicas = true\nprecision = " + precision + "\n";
    const auto one = job.losses(whole, train);
    CHECK(one[19] < one[0]);
    for (const Layout& layout : {ranks(2, "1f1b"), ranks(2, "zero_bubble", 2), devices("1f1b")})
      CHECK(difference(one, job.losses(layout, train), 20) < 1e-3);
  }
}

TEST_CASE("fp16 skips a step at all stages where the gradient of one overflows") {
  const GptJob job(adamw);
  const std::string train = "max_steps = 12\ncheck_replicas = true\nprecision = fp16\nloss_scale = 1e12\n";
  CHECK(difference(job.losses(whole, train), job.losses(ranks(2, "1f1b"), train), 12) < 1e-3);
}

TEST_CASE("an evaluation by stages is that of the whole model") {
  const std::string train = "max_steps = 3\n", eval = "[eval]\nevery_epochs = 1\nbatch_size = 40\n";
  const Job cnn(few_digits + "[model]\nname = cnn\n" + sgd + eval);
  const GptJob gpt(sgd + eval);
  const auto cnn_whole = cnn.run(whole, train), gpt_whole = gpt.run(whole, train);
  for (const Layout& layout : {ranks(4, "1f1b"), ranks(2, "interleaved", 2), devices("1f1b")}) {
    INFO(layout.ranks << " ranks\n" << layout.parallel);
    const auto evaluation = cnn.run(layout, train).evaluation;
    CHECK(std::abs(evaluation.loss / cnn_whole.evaluation.loss - 1) < 1e-6);
    CHECK(evaluation.accuracy == cnn_whole.evaluation.accuracy);
    CHECK(std::abs(gpt.run(layout, train).evaluation.loss / gpt_whole.evaluation.loss - 1) < 1e-6);
  }
}

TEST_CASE("a checkpoint of one layout of stages goes on under any other") {
  const GptJob job("dropout = 0.1\n" + adamw);
  const std::string train = "seed = 1\ncheck_replicas = true\n";
  const auto undisturbed = job.losses(whole, train + "max_steps = 24\n");
  const Layout parts[] = {ranks(2, "1f1b"),   whole, ranks(4, "gpipe"), devices("1f1b"), {2, "zero = 3\n"},
                          ranks(2, "1f1b", 2)};
  std::vector<double> resumed;
  int steps = 0;
  for (const Layout& layout : parts)
    resumed = job.losses(layout, train + "max_steps = " + std::to_string(steps += 4) + "\n", job.checkpoint_keys());
  CHECK(difference(undisturbed, resumed, 24) < 1e-4);
}

TEST_CASE("a run in stages that stops and goes on has the bits of one that does not") {
  const std::string split = "split = h.1\n";
  for (const Layout& layout : {ranks(2, "1f1b"), ranks(2, "zero_bubble", 2), devices("1f1b")}) {
    const GptJob job("dropout = 0.1\n" + adamw);
    const auto undisturbed = job.run(layout, "max_steps = 10\n", split).parameter_digest;
    job.run(layout, "max_steps = 4\n", split + job.checkpoint_keys());
    CHECK(job.run(layout, "max_steps = 10\n", split + job.checkpoint_keys()).parameter_digest == undisturbed);
  }
}

TEST_CASE("a run in stages goes on with the state that an optimizer keeps of some parameters alone") {
  const std::string muon = "[optim]\nname = muon\nlr = 0.01\nmomentum = 0.9\n";
  const std::string two = "split = h.1\n", four = "split = h.1 h.2 h.3\n";
  for (const auto& [layout, split] : {std::pair(ranks(2, "1f1b"), two), std::pair(ranks(4, "1f1b"), four),
                                      std::pair(ranks(2, "interleaved", 2), four)}) {
    INFO(layout.ranks << " ranks\n" << layout.parallel);
    const GptJob job(muon);
    const auto undisturbed = job.run(layout, "max_steps = 6\n", split).parameter_digest;
    job.run(layout, "max_steps = 3\n", split + job.checkpoint_keys());
    CHECK(job.run(layout, "max_steps = 6\n", split + job.checkpoint_keys()).parameter_digest == undisturbed);
    CHECK(job.run(whole, "max_steps = 8\n", job.checkpoint_keys()).steps == 8);
  }
}

TEST_CASE("hooks average the gradients of stages") {
  const GptJob job(sgd);
  const std::string train = "max_steps = 10\ncheck_replicas = true\n";
  const auto one = job.losses(whole, "max_steps = 10\n");
  for (const Layout& layout : {ranks(2, "1f1b", 2), ranks(2, "interleaved", 2), devices("1f1b", 2)}) {
    const bool has_four = layout.parallel.find("interleaved") != std::string::npos;
    const std::string split = has_four ? "split = h.1 h.2 h.3\n" : "split = h.1\n";
    const auto without = job.losses(layout, train, split);
    for (const auto& [hook, tolerance] :
         {std::pair("fp16", 1e-5), std::pair("bf16", 1e-4), std::pair("int8", 1e-2), std::pair("int8_channel", 1e-2),
          std::pair("int4", 3e-2), std::pair("topk\ntopk_fraction = 0.5", 3e-2),
          std::pair("powersgd\nstart_powerSGD_iter = 2", 3e-2),
          std::pair("powersgd+fp16\nstart_powerSGD_iter = 2", 3e-2)}) {
      INFO(layout.parallel << hook);
      const auto losses = job.losses(layout, train, split + "hook = " + hook + "\n");
      CHECK(losses != without);
      CHECK(difference(one, losses, 10) < tolerance);
    }
  }
}

TEST_CASE("what a hook keeps of the gradients of stages is the same after a stop") {
  for (const std::string hook : {"int4", "topk", "powersgd\nstart_powerSGD_iter = 2"})
    for (const std::string schedule : {"1f1b", "interleaved"}) {
      INFO(hook << ' ' << schedule);
      const GptJob job(adamw);
      const Layout layout = ranks(2, schedule, 2);
      const std::string more = "hook = " + hook + (schedule == "1f1b" ? "\nsplit = h.1\n" : "\nsplit = h.1 h.2 h.3\n");
      const auto undisturbed = job.run(layout, "max_steps = 6\n", more).parameter_digest;
      job.run(layout, "max_steps = 3\n", more + job.checkpoint_keys());
      CHECK(job.run(layout, "max_steps = 6\n", more + job.checkpoint_keys()).parameter_digest == undisturbed);
      CHECK(job.run(whole, "max_steps = 8\n", job.checkpoint_keys()).steps == 8);
    }
}

TEST_CASE("reductions of stages that are delayed, or look for unused parameters, have the same bits") {
  const GptJob job(adamw);
  for (const std::string schedule : {"1f1b", "interleaved"}) {
    const Layout layout = ranks(2, schedule, 2);
    const std::string split = schedule == "1f1b" ? "split = h.1\n" : "split = h.1 h.2 h.3\n";
    const auto plain = job.run(layout, "max_steps = 6\n", split).parameter_digest;
    for (const std::string more : {"find_unused_parameters = true\n", "static_graph = true\n",
                                   "delay_all_reduce_named_params = h.0.ln_1.weight "
                                   "h.3.ln_1.weight\nparam_to_hook_all_reduce = h.3.ln_2.weight\n"}) {
      INFO(schedule << ' ' << more);
      CHECK(job.run(layout, "max_steps = 6\n", split + more).parameter_digest == plain);
    }
  }
}

TEST_CASE("ranks whose stages are on devices look for unused parameters, and divide the updates") {
  const GptJob job(sgd);
  const auto one = job.losses(whole, "max_steps = 6\n");
  for (const std::string more : {"find_unused_parameters = true\n", "static_graph = true\n", "zero = 1\n",
                                 "zero = 1\nfind_unused_parameters = true\n"}) {
    INFO(more);
    for (const int data : {1, 2})
      CHECK(difference(one, job.losses(devices("1f1b", data), "max_steps = 6\n", more), 6) < 1e-6);
  }
}

TEST_CASE("a model with experts learns in stages on devices as on one device") {
  const GptJob job(sgd + "[model]\nexperts = 4\nload_balancing_loss = 0\n");
  const auto one = job.losses(whole, "max_steps = 6\n");
  for (const Layout& layout : {devices("1f1b"), devices("interleaved", 2)})
    CHECK(difference(one, job.losses(layout, "max_steps = 6\n"), 6) < 1e-6);
}

TEST_CASE("the averages of a pipeline over devices are those of one device") {
  const GptJob job(adamw + "[eval]\nevery_epochs = 1\n");
  const auto loss = [&](const Layout& layout, const std::string& train) {
    return job.run(layout, "max_steps = 6\n" + train).evaluation.loss;
  };
  const double one = loss(whole, "ema = 0.5\n");
  CHECK(one != loss(whole, ""));
  for (const Layout& layout : {devices("1f1b"), devices("interleaved", 2)})
    CHECK(std::abs(loss(layout, "ema = 0.5\n") / one - 1) < 1e-6);
}

TEST_CASE("quantization-aware training in stages is that of the whole model") {
  const std::string train = "epochs = 20\nmax_steps = 10\n", aware = "quantization_aware = true\n";
  const Job job(few_digits + "[model]\nname = cnn\n" + sgd);
  const auto one = job.losses(whole, train + aware);
  CHECK(difference(one, job.losses(whole, train), 10) > 1e-6);
  for (const Layout& layout : {ranks(2, "1f1b"), ranks(2, "zero_bubble"), ranks(2, "interleaved"), devices("1f1b")})
    CHECK(difference(one, job.losses(layout, train + aware), 10) < 1e-6);
}

TEST_CASE("what does not go with a pipeline is refused by its key") {
  const GptJob gpt(sgd);
  const auto refusal = [&](int count, const std::string& parallel, const std::string& train = "") -> std::string {
    try {
      gpt.run({count, parallel}, "max_steps = 1\n" + train);
    } catch (const Error& e) {
      CHECK(e.code() == Errc::usage);
      return e.what();
    }
    return "";
  };
  const std::string two = "pipeline = 2\nmicro_batches = 4\n";
  CHECK_THAT(refusal(2, "pipeline = 2\n"), Catch::Contains("parallel.pipeline = 2: parallel.micro_batches has to be"));
  CHECK_THAT(refusal(1, "micro_batches = 2\n"),
             Catch::Contains("it needs several parallel.devices, or parallel.pipeline"));
  CHECK_THAT(refusal(1, "schedule = gpipe\n"), Catch::Contains("it needs parallel.micro_batches"));
  CHECK(refusal(3, two) ==
        "parallel.pipeline = 2: a mesh pipeline 2 x data needs a multiple of 2 ranks, and there are 3");
  CHECK_THAT(refusal(2, two + "schedule = interleaved\n"),
             Catch::Contains("parallel.virtual_stages = 1: the schedule"));
  CHECK_THAT(refusal(2, two + "virtual_stages = 2\n"), Catch::Contains("parallel.virtual_stages = 2: the schedule"));
  CHECK_THAT(refusal(2, two + "split = h.7\n"),
             Catch::Contains("parallel.pipeline = 2") && Catch::Contains("h.7 is not among the pieces"));
  CHECK_THAT(refusal(8, "pipeline = 8\nmicro_batches = 4\n"), Catch::Contains("7 pieces with parameters for 8 stages"));
  CHECK_THAT(refusal(1, "devices = cpu:0 cpu:1\nmicro_batches = 2\nbalance = true\n"),
             Catch::Contains("parallel.balance = true: "));
  CHECK_THAT(refusal(2, two + "devices = cpu:0 cpu:1\n"), Catch::Contains("with parallel.devices = cpu:0 cpu:1: "));
  CHECK_THAT(refusal(2, two + "sync_batch_norm = true\n"), Catch::Contains("parallel.sync_batch_norm = true: "));
  CHECK_THAT(refusal(2, two, "accumulate = 2\n"), Catch::Contains("train.accumulate = 2: "));
}
