#include "ddprun/common/error.h"
#include "ddprun/worker/checkpoint/manifest.h"
#include "ddprun/worker/checkpoint/run_state.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::checkpoint;

namespace {

RunState some_state() {
  return {.step = 123,
          .epoch = 2,
          .samples = 4096,
          .seed = 18446744073709551615ULL,
          .world_size = 4,
          .batch_size = 64,
          .accumulate = 2,
          .generation = 1,
          .lr = 0.1,
          .skipped_steps = 3,
          .best_loss = 0.375,
          .loss_scale = LossScale{.scale = 8192, .good_steps = 17},
          .plateau = Plateau{.lr = 0.01, .best = 0.25, .bad_evaluations = 2, .cooldown = 1},
          .gradient_norms = {1.5, 0.1},
          .config = {{"optim.lr", "0.1"}, {"model.name", "cnn"}}};
}

}  // namespace

TEST_CASE("a run's state reads back as it was") {
  const auto state = some_state();
  CHECK(run_state_from_json(to_json(state), "state.json") == state);
}

TEST_CASE("a state that was written before the position was counted globally reads as it did") {
  const auto state = run_state_from_json(
      R"({"version":1,"step":9,"epoch":0,"samples":1152,"seed":0,"world_size":2,"batch_size":64,"accumulate":1,)"
      R"("generation":0,"lr":5E-2,"rng":{"data_order":"seed + epoch","dropout":"seed, step, rank"},)"
      R"("config_digest":"ac74","config":{"train.batch_size":"64"}})",
      "state.json");
  CHECK(state.step == 9);
  CHECK(state.samples == 1152);
  CHECK(state.world_size == 2);
  CHECK(state.lr == 0.05);
  CHECK(state.skipped_steps == 0);
  CHECK_FALSE(state.best_loss);
  CHECK_FALSE(state.loss_scale);
  CHECK(state.config == std::map<std::string, std::string>{{"train.batch_size", "64"}});
}

TEST_CASE("a state that is damaged is an error naming the member") {
  const auto text = to_json(some_state());
  const auto with = [&](const std::string& from, const std::string& to) {
    auto copy = text;
    copy.replace(copy.find(from), from.size(), to);
    return copy;
  };
  CHECK_THROWS_WITH(run_state_from_json(with("\"step\"", "\"stop\""), "s"), "s: member step is missing");
  CHECK_THROWS_WITH(run_state_from_json(with("123", "\"123\""), "s"), "s: member step is not a number in range");
  CHECK_THROWS_WITH(run_state_from_json(with("\"version\":1", "\"version\":2"), "s"),
                    "s: version 2 is not known here, expected 1");
  CHECK_THROWS_WITH(run_state_from_json(text.substr(0, 40), "s"), "s: it ends too early, after 40 bytes");
  CHECK_THROWS_WITH(run_state_from_json(with("\"good_steps\"", "\"good\""), "s"), "s: member good_steps is missing");
  CHECK_THROWS_WITH(run_state_from_json("[1]", "s"), "s: not a JSON object");
}

TEST_CASE("the digest of the settings changes with any of them") {
  CHECK(config_digest({{"a", "1"}, {"b", "2"}}) == config_digest({{"b", "2"}, {"a", "1"}}));
  CHECK(config_digest({{"a", "1"}}) != config_digest({{"a", "2"}}));
  CHECK(config_digest({{"a", "1"}}) != config_digest({{"b", "1"}}));
}

TEST_CASE("a manifest reads back, and a damaged one is an error") {
  const Manifest manifest{.step = 7, .files = {{"a.safetensors", {12, "ab"}}, {"state.json", {3, "cd"}}}};
  const auto text = to_json(manifest);
  const auto back = manifest_from_json(text, "m");
  CHECK(back.step == 7);
  CHECK(back.files.at("a.safetensors").bytes == 12);
  CHECK(back.files.at("state.json").sha256 == "cd");
  for (std::size_t n = 0; n + 1 < text.size(); ++n)
    CHECK_THROWS_WITH(manifest_from_json(text.substr(0, n), "m"),
                      "m: it ends too early, after " + std::to_string(n) + " bytes");
  CHECK_THROWS_WITH(manifest_from_json("{\"format\": \1}", "m"), "m: it is not valid JSON: syntax error");
  CHECK_THROWS_WITH(manifest_from_json("{}", "m"), "m: member format is missing");
  CHECK_THROWS_WITH(manifest_from_json(to_json(Manifest{.files = {{"../x", {}}}}), "m"),
                    "m: '../x' is not a file name");
  CHECK_THROWS_WITH(manifest_from_json(to_json(Manifest{.files = {{"\x1b[2J/", {}}}}), "m"),
                    "m: '\\x1b[2J/' is not a file name");
}
