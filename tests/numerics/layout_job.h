#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/numerics/training_job.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

// Jobs that run under several layouts of ranks, to be compared with one rank.
namespace ddprun::testing {

// Returns the largest relative difference within the first `steps` steps.
inline double difference(const std::vector<double>& a, const std::vector<double>& b, std::size_t steps) {
  REQUIRE(a.size() >= steps);
  REQUIRE(b.size() >= steps);
  double largest = 0;
  for (std::size_t i = 0; i < steps; ++i) largest = std::max(largest, std::abs(a[i] - b[i]) / std::abs(a[i]));
  return largest;
}

class LayoutJob {
 public:
  // Takes lines of a train.cfg without [train], [parallel], [metrics] and [checkpoint].
  explicit LayoutJob(std::string text) : text_(std::move(text)) {}

  // train and parallel are the lines of these sections; further lines may follow those of [parallel].
  trainer::Summary run(int ranks, const std::string& train, const std::string& parallel) const {
    return TrainingJob(text_ + "[metrics]\nfile = " + metrics().string() + "\n[train]\n" + train + "[parallel]\n" +
                       parallel)
        .run(ranks)[0];
  }
  std::vector<double> losses(int ranks, const std::string& train, const std::string& parallel) const {
    run(ranks, train, parallel);
    return losses_in(metrics());
  }
  std::string checkpoint_keys() const { return "[checkpoint]\ndir = " + (dir_ / "checkpoints").string() + "\n"; }
  std::filesystem::path metrics() const { return dir_ / "metrics"; }

 private:
  TempDir dir_;
  std::string text_;
};

// The texts of [data] and [model]: a small GPT on a text of its own.
struct SmallGpt {
  int context = 16, layers = 4, width = 32, heads = 4;
};

class TextFile {
 public:
  TextFile() {
    std::string lines;
    for (int i = 0; i < 2000; ++i) lines += "line " + std::to_string(i * 37 % 101) + " of the text, ";
    std::ofstream(*dir_ / "input.txt") << lines;
  }
  // The text belongs to the copies of this object.
  std::string keys(const SmallGpt& gpt) const {
    return "[data]\nname = text\ncontext = " + std::to_string(gpt.context) + "\ndir = " + dir_->path().string() +
           "\n[model]\nname = gpt\nlayers = " + std::to_string(gpt.layers) + "\nwidth = " + std::to_string(gpt.width) +
           "\nheads = " + std::to_string(gpt.heads) + "\n";
  }

 private:
  std::shared_ptr<TempDir> dir_ = std::make_shared<TempDir>();
};

inline const std::string sgd = "[optim]\nname = sgd\nlr = 0.05\nmomentum = 0.9\n";
inline const std::string adamw =
    "[optim]\nname = adamw\nlr = 1e-3\nweight_decay = 0.1\ndecay_one_dimensional = false\n";
inline const std::string digits = "[data]\nname = digits\nsamples = 6400\ntest_samples = 200\n";

}  // namespace ddprun::testing
