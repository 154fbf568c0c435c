#include "worker/trainer/commands/quantization.h"

#include "tests/support/catch.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;

TEST_CASE("a table has both models' figures side by side") {
  const trainer::ModelFigures before{
      .evaluation = {.loss = 0.25, .accuracy = 0.975}, .bytes = 4000, .batch = trainer::Seconds(0.002)};
  trainer::ModelFigures after{
      .evaluation = {.loss = 0.26, .accuracy = 0.97}, .bytes = 1100, .batch = trainer::Seconds(0.001)};
  const auto lines = trainer::quantization_table(before, after, 64);
  REQUIRE(lines.size() == 5);
  CHECK(lines[0] == "                              float32         int8");
  CHECK(lines[1] == "accuracy                      97.50 %      97.00 %");
  CHECK(lines[2] == "loss                           0.2500       0.2600");
  CHECK(lines[3] == "bytes                            4000         1100");
  CHECK(lines[4] == "time of a batch of 64        2.000 ms     1.000 ms");
  after.evaluation.accuracy.reset();  // a regression has none
  CHECK(trainer::quantization_table(before, after, 64).size() == 4);
}

TEST_CASE("a language model's table has its other figures") {
  const trainer::ModelFigures before{.evaluation = {.loss = 2, .accuracy = {}, .others = {{"perplexity", 7.3891}}}};
  const trainer::ModelFigures after{.evaluation = {.loss = 2.1, .accuracy = {}, .others = {{"perplexity", 8.1662}}}};
  CHECK(trainer::quantization_table(before, after, 8).at(2) == "perplexity                     7.3891       8.1662");
}

TEST_CASE("a quantization-aware model is quantized with its learnt ranges, without samples, unless told otherwise") {
  const std::string text =
      "[model]\nname = linear\n[data]\nname = random\nshape = 4\nsamples = 50\n[train]\nquantization_aware = true\n";
  for (const auto& [mode, buffers] : {std::pair{"auto", 4}, {"static", 4}, {"dynamic", 3}}) {
    TrainingJob job(text + "[quantize]\nmode = " + mode + "\n");
    const auto& read = job.record_samples();
    Replica replica(job);
    trainer::quantize_model(*replica.state.model, job.config(), *job.datasets().train);
    CHECK(read.indices().empty());
    CHECK(replica.state.model->named_buffers().size() == static_cast<std::size_t>(buffers));
  }
}

TEST_CASE("a static model is calibrated by as many training samples as are asked for") {
  const std::string text =
      "[model]\nname = linear\n[data]\nname = random\nshape = 4\nsamples = 50\n[eval]\nbatch_size = "
      "7\n[quantize]\nmode = static\nsamples = ";
  for (const std::int64_t count : {1, 20, 500}) {
    TrainingJob job(text + std::to_string(count) + "\n");
    const auto& read = job.record_samples();
    Replica replica(job);
    trainer::quantize_model(*replica.state.model, job.config(), *job.datasets().train);
    const auto indices = read.indices();
    REQUIRE(std::ssize(indices) == std::min<std::int64_t>(count, 50));
    for (std::size_t i = 0; i < indices.size(); ++i) CHECK(indices[i] == static_cast<std::int64_t>(i));
    CHECK(replica.state.model->named_parameters().empty());
  }
}

TEST_CASE("a model without a layer that can be quantized is refused") {
  const TrainingJob job("[model]\nname = linear\n[data]\nname = random\nshape = 4\n");
  Replica replica(job);
  trainer::quantize_model(*replica.state.model, job.config(), *job.datasets().train);
  CHECK_THROWS_WITH(trainer::quantize_model(*replica.state.model, job.config(), *job.datasets().train),
                    Catch::Contains("model.name = linear"));
}
