#pragma once

#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <boost/json.hpp>

#include "common/atomic_file.h"
#include "common/config/config_file.h"
#include "worker/trainer/trainer.h"
#include "tests/support/thread_group.h"

// Whole training jobs inside a test: the ranks are threads.
namespace ddprun::testing {

// A data set that records which of its samples are read. With data.workers = 0 those are the ones that are trained.
class RecordingDataset : public data::Dataset {
 public:
  explicit RecordingDataset(std::unique_ptr<data::Dataset> below) : below_(std::move(below)) {}
  std::int64_t size() const override { return below_->size(); }
  const data::SampleLayout& layout() const override { return below_->layout(); }
  void read(std::int64_t index, std::span<std::byte> input, std::span<std::byte> target) const override {
    below_->read(index, input, target);
    const std::lock_guard lock(mutex_);
    indices_.push_back(index);
  }
  std::vector<std::int64_t> indices() const { return indices_; }

 private:
  std::unique_ptr<data::Dataset> below_;
  mutable std::mutex mutex_;
  mutable std::vector<std::int64_t> indices_;
};

// The text of a train.cfg, and the job's end.
class TrainingJob {
 public:
  explicit TrainingJob(const std::string& text) {
    trainer::bind(settings_, config_);
    apply(settings_, parse_config(text, "job"), Origin::file);
    trainer::settle_batch_size(settings_, config_);
    trainer::settle_needs(settings_, config_);
    trainer::validate(config_, settings_);
    datasets_ = trainer::make_datasets(config_, settings_);
  }

  // The training samples that run() reads are recorded from now on.
  const RecordingDataset& record_samples() {
    auto recording = std::make_unique<RecordingDataset>(std::move(datasets_.train));
    const auto& reference = *recording;
    datasets_.train = std::move(recording);
    return reference;
  }

  const trainer::TrainConfig& config() const { return config_; }
  const trainer::Datasets& datasets() const { return datasets_; }

  // Returns all ranks' summaries; throws the error of the lowest failing rank.
  std::vector<trainer::Summary> run(int ranks) {
    auto groups = testing::make_thread_groups(ranks, std::chrono::seconds(60));
    std::vector<trainer::Summary> summaries(groups.size());
    std::vector<std::exception_ptr> failures(groups.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < groups.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          trainer::Progress silent(nullptr, 0);
          trainer::Trainer rank_trainer(config_, trainer::settings_that_decide(settings_), datasets_,
                                        {groups[rank].get(), silent});
          summaries[rank] = rank_trainer.run();
        } catch (...) {
          failures[rank] = std::current_exception();
          groups[rank]->abort("a rank of the test failed");
        }
      });
    }
    for (auto& thread : threads) thread.join();
    for (const auto& failure : failures) {
      if (failure) std::rethrow_exception(failure);
    }
    return summaries;
  }

 private:
  trainer::TrainConfig config_;
  Settings settings_;
  trainer::Datasets datasets_;
};

// Returns a number of every step in a metrics file in order. Throws when a step is missing or there twice.
inline std::vector<double> numbers_in(const std::filesystem::path& metrics, const std::string& key) {
  std::vector<double> numbers;
  std::istringstream lines(read_whole_file(metrics));
  for (std::string line; std::getline(lines, line);) {
    const auto record = boost::json::parse(line).as_object();
    if (!record.contains("step")) continue;
    numbers.push_back(record.at(key).to_number<double>());
    if (record.at("step").as_int64() != std::ssize(numbers)) throw std::runtime_error("a step out of turn: " + line);
  }
  return numbers;
}

inline std::vector<double> losses_in(const std::filesystem::path& metrics) {
  return numbers_in(metrics, "loss");
}

}  // namespace ddprun::testing
