// Jobs of eight ranks as a mesh of pipeline x data x tensor, beside the same job at one rank.
#include "tests/numerics/layout_job.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

constexpr int ranks = 8;
constexpr int step_samples = 16;

// The sizes of the dimensions, and further lines of [parallel].
struct Mesh {
  int data, tensor, pipeline;
  std::string more = {};

  // Each data rank's share of a step passes in micro-batches of two samples.
  std::string keys() const {
    std::string lines = "tensor = " + std::to_string(tensor) + "\n";
    if (pipeline > 1)
      lines += "pipeline = " + std::to_string(pipeline) +
               "\nmicro_batches = " + std::to_string(std::max(step_samples / data / 2, 1)) + "\n";
    return lines + more;
  }
};

std::vector<Mesh> factorisations() {
  std::vector<Mesh> all;
  for (const int tensor : {1, 2, 4, 8})
    for (const int pipeline : {1, 2, 4, 8})
      if (tensor * pipeline <= ranks) all.push_back({ranks / tensor / pipeline, tensor, pipeline});
  return all;
}

// The model has eight layers and eight heads.
class GptJob {
 public:
  explicit GptJob(const std::string& optim) : job_(text_.keys({.layers = 8, .heads = 8}) + "dropout = 0.1\n" + optim) {}

  trainer::Summary run(const Mesh& mesh, const std::string& train, const std::string& more = {}) const {
    return job_.run(ranks, batch + train, mesh.keys() + more);
  }
  std::vector<double> losses(const Mesh& mesh, const std::string& train, const std::string& more = {}) const {
    return job_.losses(ranks, batch + train, mesh.keys() + more);
  }
  std::vector<double> losses_of_one(const std::string& train) const {
    return job_.losses(1, batch + "accumulate = 8\n" + train, "");
  }
  std::string checkpoint_keys() const { return job_.checkpoint_keys(); }

 private:
  inline static const std::string batch = "global_batch_size = " + std::to_string(step_samples) + "\n";
  TextFile text_;
  LayoutJob job_;
};

const std::string clipped = sgd + "clip_norm = 0.5\n";

}  // namespace

TEST_CASE("every mesh of eight ranks learns as one rank") {
  const GptJob job(clipped);
  const auto one = job.losses_of_one("max_steps = 10\n");
  const auto meshes = factorisations();
  REQUIRE(meshes.size() == 10);
  for (const Mesh& mesh : meshes) {
    INFO(mesh.keys());
    CHECK(difference(one, job.losses(mesh, "max_steps = 10\ncheck_replicas = true\n"), 10) < 1e-6);
  }
}

TEST_CASE("fifty steps of stages, layers and replicas are those of one rank, by every schedule") {
  const GptJob job(clipped);
  const auto one = job.losses_of_one("max_steps = 50\n");
  CHECK(one[49] < one[0]);
  for (const std::string schedule :
       {"1f1b\n", "zero_bubble\n", "interleaved\nvirtual_stages = 2\n", "gpipe\nsequence = true\n"}) {
    const Mesh mesh{2, 2, 2, "schedule = " + schedule};
    INFO(mesh.keys());
    CHECK(difference(one, job.losses(mesh, "max_steps = 50\n"), 50) < 1e-5);
  }
}

TEST_CASE("a checkpoint of one mesh goes on under any other") {
  const GptJob job(adamw);
  const std::string train = "seed = 1\n";
  const auto undisturbed = job.losses_of_one(train + "max_steps = 12\n");
  const Mesh meshes[] = {{2, 2, 2}, {1, 4, 2}, {8, 1, 1, "zero = 3\n"}, {1, 2, 4}};
  std::vector<double> resumed;
  int steps = 0;
  for (const Mesh& mesh : meshes)
    resumed = job.losses(mesh, train + "max_steps = " + std::to_string(steps += 3) + "\n", job.checkpoint_keys());
  CHECK(difference(undisturbed, resumed, 12) < 1e-4);
}

TEST_CASE("a run on a mesh that stops and goes on has the bits of one that does not") {
  const GptJob job(adamw);
  const Mesh mesh{2, 2, 2, "split = h.3\n"};
  const auto undisturbed = job.run(mesh, "max_steps = 6\n").parameter_digest;
  job.run(mesh, "max_steps = 3\n", job.checkpoint_keys());
  CHECK(job.run(mesh, "max_steps = 6\n", job.checkpoint_keys()).parameter_digest == undisturbed);
}

TEST_CASE("fp16 skips a step at all ranks of a mesh where one gradient overflows") {
  const GptJob job(adamw);
  const std::string train = "max_steps = 12\nprecision = fp16\nloss_scale = 1e12\n";
  CHECK(difference(job.losses_of_one(train), job.losses({2, 2, 2}, train + "check_replicas = true\n"), 12) < 2e-2);
}
