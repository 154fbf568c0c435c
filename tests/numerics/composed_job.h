#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tests/numerics/layout_job.h"

// Jobs on products of the axes of the mesh, beside the same job at one rank.
namespace ddprun::testing {

inline constexpr int step_samples = 16;

struct Mesh {
  int pipeline = 1, data = 1, context = 1, tensor = 1;
  int zero = 0;
  std::string more = {};  // further lines of [parallel]
  int expert = 1;

  int ranks() const { return pipeline * data * expert * context * tensor; }
  // Each data rank's share of a step passes in micro-batches of two samples.
  std::string keys() const {
    std::string lines = fmt::format("context = {}\ntensor = {}\nzero = {}\n", context, tensor, zero);
    if (expert > 1) lines += fmt::format("expert = {}\n", expert);
    if (pipeline > 1)
      lines +=
          fmt::format("pipeline = {}\nmicro_batches = {}\n", pipeline, std::max(step_samples / data / expert / 2, 1));
    return lines + more;
  }
};

class Job {
 public:
  explicit Job(const std::string& optim, const std::string& model = "dropout = 0.1\n",
               std::string batch = fmt::format("global_batch_size = {}\n", step_samples))
      : batch_(std::move(batch)), job_(text_.keys({.context = 32, .layers = 4, .heads = 8}) + model + optim) {}

  trainer::Summary run(const Mesh& mesh, const std::string& train, const std::string& more = {}) const {
    return job_.run(mesh.ranks(), batch_ + train, mesh.keys() + more);
  }
  std::vector<double> losses(const Mesh& mesh, const std::string& train, const std::string& more = {}) const {
    return job_.losses(mesh.ranks(), batch_ + train, mesh.keys() + more);
  }
  trainer::Summary run_one(const std::string& train, const std::string& more = {}) const {
    return job_.run(1, batch_ + "accumulate = 8\n" + train, more);
  }
  std::vector<double> losses_of_one(const std::string& train, const std::string& more = {}) const {
    return job_.losses(1, batch_ + "accumulate = 8\n" + train, more);
  }
  std::vector<double> losses_of_whole_batches(const std::string& train) const {
    return job_.losses(1, batch_ + train, "");
  }
  // Returns a number of each step of the last run.
  std::vector<double> metric(const std::string& key) const { return numbers_in(job_.metrics(), key); }
  std::string checkpoint_keys() const { return job_.checkpoint_keys(); }

 private:
  std::string batch_;
  TextFile text_;
  LayoutJob job_;
};

inline const std::string clipped = sgd + "clip_norm = 0.5\n";
inline const std::string small_buckets = "[dist]\nbucket_mb = 0.02\n";

// Trains two steps on each mesh, from the checkpoint of the one before, and compares all of them with one rank's.
inline void check_resumed(const Job& job, const std::vector<Mesh>& meshes) {
  const auto train = [](std::size_t steps) {
    return "seed = 1\nema = 0.9\ncheck_replicas = true\nmax_steps = " + std::to_string(steps) + "\n";
  };
  const std::size_t steps = 2 * meshes.size();
  const auto undisturbed = job.losses_of_one(train(steps));
  std::vector<double> resumed;
  for (std::size_t m = 0; m < meshes.size(); ++m)
    resumed = job.losses(meshes[m], train(2 * (m + 1)), job.checkpoint_keys());
  CHECK(difference(undisturbed, resumed, steps) < 1e-4);
}

}  // namespace ddprun::testing
