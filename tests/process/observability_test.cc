#include <boost/json.hpp>

#include "tests/process/training.h"
#include "tests/support/catch.h"

// What those who watch a running job see of it.
namespace ddprun::testing {
namespace {

// A job that trains until it is stopped, in a runtime folder of its own.
struct WatchedJob {
  Training training;
  TempDir runtime;

  Variables variables() const {
    auto variables = training.marker.variables();
    variables["DDPRUN_RUNTIME_DIR"] = runtime.path().string();
    return variables;
  }
  Child start(const Words& launch) const {
    return Child(training.job(launch, {"--train.epochs=100000", "--checkpoint.every_steps=20"}), variables());
  }
  boost::json::value status() const {
    const auto result = Child({DDPRUN_PROGRAM, "status", "--json"}, variables()).wait();
    const auto document = boost::json::parse(result.out);
    const auto& jobs = document.at("jobs").as_array();
    return jobs.size() == 1 ? jobs[0] : boost::json::value();
  }
};

bool trains(const boost::json::value& job) {
  return job.is_object() && job.get_object().contains("training") && job.at("training").at("step").as_int64() > 0;
}

}  // namespace

TEST_CASE("ddprun status shows how far a training is, and that it goes on") {
  const WatchedJob job;
  auto child = job.start(two_workers());
  boost::json::value seen;
  child.wait_until([&] { return trains(seen = job.status()); }, "the first step");
  const auto first = seen.at("training").at("step").as_int64();
  child.wait_until([&] { return (seen = job.status()).at("training").at("step").as_int64() > first; }, "more steps");
  const auto& training = seen.at("training");
  CHECK(training.at("total_steps").as_int64() == 100'000 * 50);
  CHECK(training.at("loss").as_double() > 0);
  CHECK(training.at("samples_per_s").as_double() > 0);
  CHECK(training.at("seconds_left").as_double() > 0);
  for (const auto& worker : seen.at("nodes").at(0).at("workers").as_array())
    CHECK(worker.at("training").at("step").as_int64() >= first);
  CHECK_THAT(Child({DDPRUN_PROGRAM, "status"}, job.variables()).wait().out, Catch::Contains("  training: step "));
  child.signal(SIGTERM);
  child.wait();
}

}  // namespace ddprun::testing
