#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <random>

#include "common/error.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/run_state.h"
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
          .ledger = "0123abcd",
          .config = {{"optim.lr", "0.1"}, {"model.name", "cnn"}}};
}

}  // namespace

TEST_CASE("a run's state reads back as it was") {
  const auto state = some_state();
  CHECK(run_state_from_json(to_json(state), "state.json") == state);
}

TEST_CASE("all bits of a double read back") {
  std::mt19937_64 random(1);
  const auto any_double = [&random] {
    while (true)
      if (const auto value = std::bit_cast<double>(random()); std::isfinite(value)) return std::abs(value);
  };
  auto state = some_state();
  state.lr = 0.1 + 0.2;
  state.best_loss = 1.0 / 3;
  state.gradient_norms = {1e-310, 5e-324, 1.7976931348623157e308, 1e22, 1e23};
  CHECK(run_state_from_json(to_json(state), "state.json") == state);
  state.gradient_norms.resize(100);
  for (int i = 0; i < 1000; ++i) {
    std::ranges::generate(state.gradient_norms, any_double);
    REQUIRE(run_state_from_json(to_json(state), "state.json") == state);
  }
}

TEST_CASE("a state that was written before the position was counted globally reads as it did") {
  const auto state = run_state_from_json(
      R"({"version":1,"step":9,"epoch":0,"samples":1152,"seed":0,"world_size":2,"batch_size":64,"accumulate":1,)"
      R"("generation":0,"lr":5E-2,"rng":{"data_order":"seed + epoch","dropout":"seed, step, rank"},)"
      R"("config_digest":"a9cf0bceee20b86387c4da6604e801a04134d08b5dbf4f42e2ac08c3df04079f","config":{"train.batch_size":"64"}})",
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

TEST_CASE("a state in which no run can stand is an error naming the member, its value and what it has to be") {
  const auto error_of = [](const std::function<void(RunState&)>& change) {
    auto state = some_state();
    state.config = {{"train.accumulate", "2"}, {"train.seed", "18446744073709551615"}};
    change(state);
    try {
      run_state_from_json(to_json(state), "s");
    } catch (const Error& e) {
      CHECK(e.code() == Errc::io);
      return std::string(e.what());
    }
    return std::string("no error");
  };
  CHECK(error_of([](auto&) {}) == "no error");
  CHECK(error_of([](auto& s) { s.step = -1; }) == "s: member step is -1, expected at least 0");
  CHECK(error_of([](auto& s) { s.epoch = 1'000'000'000'000'000'000; }) ==
        "s: member epoch is 1000000000000000000, expected 0 to 123, since each epoch has a step");
  CHECK(error_of([](auto& s) { s.epoch = -1; }).starts_with("s: member epoch is -1, expected 0 to 123"));
  CHECK(error_of([](auto& s) { s.samples = -1; }) == "s: member samples is -1, expected at least 0");
  CHECK(error_of([](auto& s) { s.epoch = 123; }) ==
        "s: member samples is 4096, expected 0 to 0, since no step of this epoch is done");
  CHECK(error_of([](auto& s) { s.skipped_steps = 124; }) ==
        "s: member skipped_steps is 124, expected 0 to 123, since these are among the steps");
  CHECK(error_of([](auto& s) { s.world_size = 0; }) == "s: member world_size is 0, expected at least 1");
  CHECK(error_of([](auto& s) { s.batch_size = 0; }) == "s: member batch_size is 0, expected 1 to 1000000000");
  CHECK(error_of([](auto& s) { s.accumulate = 0; }) == "s: member accumulate is 0, expected 1 to 1000000000");
  CHECK(error_of([](auto& s) { s.accumulate = 3; }) ==
        "s: member accumulate is 3, expected 2, the value of config.train.accumulate");
  CHECK(error_of([](auto& s) { s.seed = 7; }) ==
        "s: member seed is 7, expected 18446744073709551615, the value of config.train.seed");
  CHECK(error_of([](auto& s) { s.generation = -1; }) == "s: member generation is -1, expected at least 0");
  CHECK(error_of([](auto& s) { s.lr = -0.5; }) == "s: member lr is -0.5, expected a number, at least 0");
  CHECK(error_of([](auto& s) { s.loss_scale->scale = 0; }) ==
        "s: member loss_scale.scale is 0, expected a number above 0");
  CHECK(error_of([](auto& s) { s.loss_scale->good_steps = -1; }).starts_with("s: member loss_scale.good_steps is -1"));
  CHECK(error_of([](auto& s) { s.plateau->lr = -1; }) == "s: member plateau.lr is -1, expected a number, at least 0");
  CHECK(error_of([](auto& s) {
          s.plateau->bad_evaluations = 124;
        }).starts_with("s: member plateau.bad_evaluations is 124, expected 0 to 123"));
  CHECK(error_of([](auto& s) { s.plateau->cooldown = -1; }) == "s: member plateau.cooldown is -1, expected at least 0");
  CHECK(error_of([](auto& s) { s.gradient_norms.assign(101, 1); }) ==
        "s: member gradient_norms is 101, expected 0 to 100, the number of elements");
  CHECK(error_of([](auto& s) { s.gradient_norms[1] = -1; }) ==
        "s: member gradient_norms is -1, expected a number, at least 0");
}

TEST_CASE("a number that is too large for its type is not taken for one") {
  auto text = to_json(some_state());
  const std::string loss = "\"best_loss\":3.75E-1";
  CHECK_THROWS_WITH(run_state_from_json(text.replace(text.find(loss), loss.size(), "\"best_loss\":1E400"), "s"),
                    "s: member best_loss is inf, expected a number");
}

TEST_CASE("a name that is there twice in a state or a manifest is an error") {
  const auto doubled = [](std::string text, const std::string& member) {
    return text.replace(text.find('{') + 1, 0, member + ",");
  };
  CHECK_THROWS_WITH(run_state_from_json(doubled(to_json(some_state()), "\"step\":7"), "s"),
                    "s: the name 'step' is there twice in one object");
  CHECK_THROWS_WITH(run_state_from_json(doubled(to_json(some_state()), "\"\\u0073tep\":7"), "s"),
                    "s: the name 'step' is there twice in one object");
  const Manifest manifest{.step = 7, .files = {{"a", {12, "ab"}}, {"b", {3, "cd"}}}};
  auto text = to_json(manifest);
  text.replace(text.find("\"b\""), 3, "\"a\"");
  CHECK_THROWS_WITH(manifest_from_json(text, "m"), "m: the name 'a' is there twice in one object");
  CHECK_THROWS_WITH(manifest_from_json(to_json(Manifest{.step = -1}), "m"),
                    "m: member step is -1, expected at least 0");
}

TEST_CASE("settings that do not have the digest beside them are an error") {
  auto text = to_json(some_state());
  text.replace(text.find("\"cnn\""), 5, "\"mlp\"");
  CHECK_THROWS_WITH(run_state_from_json(text, "s"),
                    Catch::StartsWith("s: member config_digest is ") && Catch::EndsWith(", the digest of config"));
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
