// Jobs of real processes whose ranks divide the experts of a GPT.
#include "tests/process/divided_job.h"

using namespace ddprun::testing;

namespace {

// These are the sizes of write_form_job()'s GPT.
constexpr double layers = 4, width = 32, context = 16, batch = 16, experts = 4;
constexpr double bytes_of_expert = 4 * (2 * width * 4 * width + 4 * width + width);

const std::string key = "parallel.expert";

}  // namespace

TEST_CASE("processes that divide experts learn as one, through shared memory and over gloo") {
  check_learns_as_one(DividedJob("gpt_experts", key));
}

TEST_CASE("each rank has its part of the experts, and no more") {
  const DividedJob job("gpt_experts", key);
  const Words words{"--train.max_steps=2", "--train.memory_report=true", "--optim.name=adam"};
  const auto one = job.records(1, 1, words).memory;
  for (const int ranks : {2, 4}) {
    INFO(ranks);
    const double less = layers * experts * bytes_of_expert * (1 - 1.0 / ranks);
    const auto divided = job.records(ranks, ranks, words).memory;
    CHECK(one.parameters - divided.parameters == less);
    CHECK(one.gradients - divided.gradients == less);
    CHECK(one.optimizer - divided.optimizer == 2 * less);
  }
}

// Every token goes to all experts, so that their number is known: in each layer rows go to the ranks of their experts
// and back, and so do their gradients; all ranks reduce what they share, and those with the same experts reduce these.
TEST_CASE("what processes that divide experts send is what the formula says") {
  const DividedJob job("gpt_experts", key);
  const auto rest = [](int ranks) { return (ranks - 1.0) / ranks; };
  for (const auto& [ranks, parts] : {std::pair{2, 2}, std::pair{4, 4}, std::pair{4, 2}}) {
    INFO(ranks << " ranks, " << parts << " parts");
    const auto records = job.records(
        ranks, parts,
        {"--train.max_steps=3", "--dist.backend=gloo", "--train.memory_report=true", "--model.experts_per_token=4"});
    const double rows = layers * 4 * rest(parts) * batch / ranks * context * experts * width * 4;
    const double own_experts = layers * experts / parts * bytes_of_expert;
    const double gradients = 2 * rest(ranks) * (records.memory.gradients - own_experts);
    const double of_experts = 2 * rest(ranks / parts) * own_experts;
    CHECK(records.bytes_sent.at(2) == Approx(rows + gradients + of_experts).epsilon(0.01));
  }
}
