#pragma once

#include <filesystem>
#include <string>

#include "tests/process/worker.h"
#include "tests/support/parallel_forms.h"
#include "tests/support/step_records.h"

namespace ddprun::testing {

// A job of real processes whose ranks divide something of a model: key, of a train.cfg, is the number of them that do.
class DividedJob {
 public:
  DividedJob(const std::string& model, std::string key, const FormJobSize& size = {})
      : config_(write_form_job(folder_.path(), model, size)), key_(std::move(key)) {}

  Words words(int ranks, int parts, const Words& more) const {
    Words words{DDPRUN_PROGRAM,
                "--standalone",
                "--nproc_per_node=" + std::to_string(ranks),
                config_.string(),
                "--metrics.file=" + metrics(),
                "--" + key_ + "=" + std::to_string(parts)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  StepRecords records(int ranks, int parts, const Words& more) const {
    std::filesystem::remove(metrics());
    const auto result = Child(words(ranks, parts, more), one_thread).wait(std::chrono::seconds(100));
    INFO(result.out << result.err);
    REQUIRE(result.code == 0);
    return read_records(metrics());
  }
  std::string metrics() const { return (folder_ / "metrics").string(); }

 private:
  TempDir folder_;
  std::filesystem::path config_;
  std::string key_;
};

// Groups of two and of four learn what one process does, through shared memory and over gloo.
inline void check_learns_as_one(const DividedJob& job) {
  const Words steps{"--train.max_steps=50"};
  const auto one = job.records(1, 1, steps).losses;
  CHECK(one[49] < one[0]);
  for (const std::string backend : {"shm", "gloo"})
    for (const int ranks : {2, 4}) {
      INFO(backend << ' ' << ranks);
      Words words = steps;
      words.push_back("--dist.backend=" + backend);
      const auto divided = job.records(ranks, ranks, words).losses;
      CHECK(largest_difference(one, divided, 10) < 1e-6);
      CHECK(largest_difference(one, divided, 50) < 1e-5);
    }
}

}  // namespace ddprun::testing
