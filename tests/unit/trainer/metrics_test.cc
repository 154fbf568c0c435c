#include "worker/trainer/report/metrics.h"

#include <fstream>
#include <limits>

#include <boost/json.hpp>

#include "common/atomic_file.h"
#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::trainer;
using ddprun::testing::TempDir;

namespace {

std::string step_line(std::int64_t step) {
  return to_json(StepRecord{.step = step, .epoch = 1}) + "\n";
}
const std::string eval_line = to_json(EvalRecord{.epoch = 1, .eval_loss = 0.5}) + "\n";

}  // namespace

TEST_CASE("records are JSON objects with the promised keys") {
  const auto step = boost::json::parse(to_json(StepRecord{
      .step = 7, .epoch = 2, .loss = 0.1, .lr = 1e-3, .samples_per_s = 1234.5, .compute = 0.75, .wait = 0.25}));
  CHECK(step.as_object().size() == 7);
  CHECK(step.at("step").as_int64() == 7);
  CHECK(step.at("epoch").as_int64() == 2);
  CHECK(step.at("loss").as_double() == 0.1);  // all digits: losses are compared to 1e-6 and better
  CHECK(step.at("lr").as_double() == 1e-3);
  CHECK(step.at("samples_per_s").as_double() == 1234.5);
  CHECK(step.at("compute").as_double() == 0.75);
  CHECK(step.at("wait").as_double() == 0.25);
  CHECK_FALSE(step.as_object().contains("bytes_sent"));
  CHECK(boost::json::parse(to_json(StepRecord{.bytes_sent = 4096})).at("bytes_sent").as_int64() == 4096);
  CHECK(to_json(StepRecord{.staleness = {7, 0, 2}}).ends_with(R"("staleness": [7, 0, 2]})"));
  const auto clipped = boost::json::parse(to_json(StepRecord{.grad_norm = 1.5}));
  CHECK(clipped.as_object().size() == 8);
  CHECK(clipped.at("grad_norm").as_double() == 1.5);
  const auto scaled = boost::json::parse(to_json(StepRecord{.loss_scale = 4096, .skipped_steps = 2}));
  CHECK(scaled.as_object().size() == 9);
  CHECK(scaled.at("loss_scale").to_number<double>() == 4096);
  CHECK(scaled.at("skipped_steps").as_int64() == 2);

  const auto eval = boost::json::parse(to_json(EvalRecord{.epoch = 3, .eval_loss = 0.25, .accuracy = 0.5}));
  CHECK(eval.as_object().size() == 3);
  CHECK(eval.at("epoch").as_int64() == 3);
  CHECK(eval.at("eval_loss").as_double() == 0.25);
  CHECK(eval.at("accuracy").as_double() == 0.5);
  CHECK(boost::json::parse(to_json(EvalRecord{})).at("accuracy").is_null());
  const auto more = boost::json::parse(to_json(EvalRecord{.others = {{"perplexity", 12.5}}}));
  CHECK(more.at("perplexity").as_double() == 12.5);
  CHECK(boost::json::parse(to_json(StepRecord{.loss = std::numeric_limits<double>::quiet_NaN()})).at("loss").is_null());
}

TEST_CASE("going on keeps what belongs to the steps done, to the byte") {
  const auto text = step_line(1) + step_line(2) + eval_line + step_line(3) + step_line(4) + eval_line;
  CHECK(metrics_up_to(text, 0).empty());
  CHECK(metrics_up_to(text, 1) == step_line(1));
  CHECK(metrics_up_to(text, 2) == step_line(1) + step_line(2) + eval_line);
  CHECK(metrics_up_to(text, 3) == step_line(1) + step_line(2) + eval_line + step_line(3));
  CHECK(metrics_up_to(text, 4) == text);
  CHECK(metrics_up_to(text, 9) == text);
}

TEST_CASE("a line that was torn by a crash is dropped with what follows") {
  const auto text = step_line(1) + step_line(2);
  CHECK(metrics_up_to(std::string_view(text).substr(0, text.size() - 1), 5) == step_line(1));
  CHECK(metrics_up_to(step_line(1) + "{\"step\": 2, \"ep\n" + step_line(3), 5) == step_line(1));
}

TEST_CASE("a file that is gone on with has every step once") {
  TempDir dir;
  const auto path = dir / "new/metrics.jsonl";
  {
    MetricsFile file(path, 0);
    for (std::int64_t step = 1; step <= 5; ++step) file.add(StepRecord{.step = step, .epoch = 1});
    file.flush();
  }
  {
    MetricsFile file(path, 3);
    for (std::int64_t step = 4; step <= 6; ++step) file.add(StepRecord{.step = step, .epoch = 1});
    file.add(EvalRecord{.epoch = 1, .eval_loss = 0.5});
  }
  std::string expected;
  for (std::int64_t step = 1; step <= 6; ++step) expected += step_line(step);
  CHECK(read_whole_file(path) == expected + eval_line);
  MetricsFile fresh(path, 0);
  CHECK(read_whole_file(path).empty());
}

TEST_CASE("a long file is cut where a short one would be, also one whose last line is torn") {
  std::string whole;
  for (std::int64_t step = 1; step <= 4000; ++step) whole += step_line(step) + (step % 100 == 0 ? eval_line : "");
  REQUIRE(whole.size() > 4 * 65536);
  const TempDir dir;
  for (const std::string torn : {"", "{\"step\": 4001, \"ep"})
    for (const std::int64_t last_step : {1, 3, 2500, 3900, 3999, 4000, 5000}) {
      CAPTURE(torn, last_step);
      std::ofstream(dir / "m") << whole << torn;
      const MetricsFile file(dir / "m", last_step);
      CHECK((read_whole_file(dir / "m") == metrics_up_to(whole, last_step)));
    }
}

TEST_CASE("a metrics file that cannot be opened is an error naming it") {
  CHECK_THROWS_WITH(MetricsFile("/proc/none/x", 0), Catch::StartsWith("cannot open /proc/none/x: "));
}
