// Jobs on a mesh of pipeline x data x tensor whose updates, or gradients and parameters as well, are divided among the
// data ranks, beside the same job at one rank.
#include "tests/numerics/layout_job.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

constexpr int step_samples = 16;

struct Mesh {
  int data, tensor, pipeline;
  std::string more = {};  // further lines of [parallel]
  int zero = 1;

  int ranks() const { return data * tensor * pipeline; }
  // Each data rank's share of a step passes in micro-batches of two samples.
  std::string keys() const {
    std::string lines = "zero = " + std::to_string(zero) + "\ntensor = " + std::to_string(tensor) + "\n";
    if (pipeline > 1)
      lines += "pipeline = " + std::to_string(pipeline) +
               "\nmicro_batches = " + std::to_string(std::max(step_samples / data / 2, 1)) + "\n";
    return lines + more;
  }
};

std::vector<Mesh> factorisations(int ranks) {
  std::vector<Mesh> all;
  for (int tensor = 1; tensor <= ranks; tensor *= 2)
    for (int pipeline = 1; tensor * pipeline <= ranks; pipeline *= 2)
      all.push_back({ranks / tensor / pipeline, tensor, pipeline});
  return all;
}

// The model has eight layers and eight heads: buckets of parameters that take several ranges, and an embedding that is
// tied to the head of the last stage.
class GptJob {
 public:
  explicit GptJob(const std::string& optim) : job_(text_.keys({.layers = 8, .heads = 8}) + "dropout = 0.1\n" + optim) {}

  trainer::Summary run(const Mesh& mesh, const std::string& train, const std::string& more = {}) const {
    return job_.run(mesh.ranks(), batch + train, mesh.keys() + more);
  }
  std::vector<double> losses(const Mesh& mesh, const std::string& train, const std::string& more = {}) const {
    return job_.losses(mesh.ranks(), batch + train, mesh.keys() + more);
  }
  trainer::Summary run_one(const std::string& train, const std::string& more = {}) const {
    return job_.run(1, batch + "accumulate = 8\n" + train, more);
  }
  std::vector<double> losses_of_one(const std::string& train, const std::string& more = {}) const {
    return job_.losses(1, batch + "accumulate = 8\n" + train, more);
  }
  std::vector<double> recorded_losses() const { return losses_in(job_.metrics()); }
  std::string checkpoint_keys() const { return job_.checkpoint_keys(); }

 private:
  inline static const std::string batch = "global_batch_size = " + std::to_string(step_samples) + "\n";
  TextFile text_;
  LayoutJob job_;
};

const std::string clipped = sgd + "clip_norm = 0.5\n";
const std::string small_buckets = "[dist]\nbucket_mb = 0.02\n";

void check_learns_as_one(const GptJob& job, const std::vector<Mesh>& meshes, double tolerance) {
  const auto one = job.losses_of_one("max_steps = 10\n");
  CHECK(one[9] < one[0]);
  for (const Mesh& mesh : meshes) {
    INFO(mesh.keys());
    CHECK(difference(one, job.losses(mesh, "max_steps = 10\ncheck_replicas = true\n", small_buckets), 10) < tolerance);
  }
}

}  // namespace

TEST_CASE("every mesh of four ranks with divided updates learns as one rank") {
  check_learns_as_one(GptJob(clipped), factorisations(4), 1e-6);
}

TEST_CASE("every mesh of eight ranks with divided updates learns as one rank") {
  check_learns_as_one(GptJob(clipped), factorisations(8), 1e-6);
}

TEST_CASE("every mesh of four and of eight ranks with stages and divided gradients or parameters learns as one rank") {
  std::vector<Mesh> meshes;
  for (const int ranks : {4, 8})
    for (const Mesh& mesh : factorisations(ranks))
      for (const int zero : {2, 3})
        if (mesh.pipeline > 1 && (mesh.data > 1 || ranks == 4))
          meshes.push_back({mesh.data, mesh.tensor, mesh.pipeline, mesh.more, zero});
  check_learns_as_one(GptJob(clipped), meshes, 1e-6);
}

TEST_CASE("divided gradients and parameters go with every schedule, with what is computed again and with groups") {
  const GptJob job(clipped);
  const auto one = job.losses_of_one("max_steps = 10\n");
  for (const std::string schedule : {"gpipe", "1f1b", "interleaved\nvirtual_stages = 2", "zero_bubble"})
    for (const auto& [zero, more] :
         {std::pair(2, ""), std::pair(3, ""), std::pair(3, "reshard_after_forward = false\n"),
          std::pair(3, "shard_group = 2\n")})
      for (const std::string train : {"", "recompute = blocks\n"}) {
        const int data = more == std::string("shard_group = 2\n") ? 4 : 2;
        const Mesh mesh{data, 1, 2, "schedule = " + schedule + "\n" + more, zero};
        INFO(mesh.keys() << train);
        CHECK(difference(one, job.losses(mesh, "max_steps = 10\ncheck_replicas = true\n" + train, small_buckets), 10) <
              1e-6);
      }
}

TEST_CASE("AdamW learns as at one rank on every mesh of four ranks with divided updates") {
  check_learns_as_one(GptJob(adamw + "clip_norm = 0.5\n"), factorisations(4), 1e-5);
}

TEST_CASE("gradients and parameters that are divided go with divided layers") {
  const GptJob job(clipped);
  const auto one = job.losses_of_one("max_steps = 10\n");
  std::vector<Mesh> meshes{{2, 2, 1, "reshard_after_forward = false\n", 3}};
  for (const int zero : {2, 3})
    for (const Mesh& mesh : {Mesh{1, 2, 1}, Mesh{2, 2, 1}, Mesh{4, 2, 1}, Mesh{2, 4, 1},
                             Mesh{4, 2, 1, "shard_group = 2\n"}, Mesh{2, 2, 1, "sequence = true\n"}})
      meshes.push_back({mesh.data, mesh.tensor, mesh.pipeline, mesh.more, zero});
  for (const Mesh& mesh : meshes)
    for (const std::string train : {"", "accumulate = 2\nrecompute = blocks\n"}) {
      INFO(mesh.keys() << train);
      CHECK(difference(one, job.losses(mesh, "max_steps = 10\ncheck_replicas = true\n" + train, small_buckets), 10) <
            1e-6);
    }
}

TEST_CASE("divided updates go with every schedule, with positions that are divided, and with accumulation") {
  const GptJob job(clipped);
  const auto one = job.losses_of_one("max_steps = 50\n");
  for (const Mesh& mesh :
       {Mesh{2, 2, 2, "schedule = zero_bubble\n"}, Mesh{2, 1, 2, "schedule = interleaved\nvirtual_stages = 2\n"},
        Mesh{2, 2, 2, "schedule = gpipe\nsequence = true\n"}, Mesh{2, 2, 1, "sequence = true\n"}}) {
    INFO(mesh.keys());
    CHECK(difference(one, job.losses(mesh, "max_steps = 50\n", small_buckets), 50) < 1e-5);
  }
  CHECK(difference(one, job.losses({2, 2, 1}, "max_steps = 50\naccumulate = 4\nrecompute = blocks\n"), 50) < 1e-5);
}

TEST_CASE("hooks average gradients for divided updates") {
  const GptJob job(clipped);
  const std::string train = "max_steps = 10\ncheck_replicas = true\n";
  const auto one = job.losses_of_one("max_steps = 10\n");
  for (const Mesh& mesh : {Mesh{4, 1, 1}, Mesh{2, 1, 2, "split = h.3\n"}}) {
    const auto without = job.losses(mesh, train);
    for (const auto& [hook, tolerance] :
         {std::pair("fp16", 1e-5), std::pair("bf16", 1e-4), std::pair("int8", 1e-2), std::pair("int4", 3e-2),
          std::pair("powersgd\nstart_powerSGD_iter = 2", 3e-2)}) {
      INFO(mesh.keys() << hook);
      const auto losses = job.losses(mesh, train, std::string("hook = ") + hook + "\n");
      CHECK(losses != without);
      CHECK(difference(one, losses, 10) < tolerance);
    }
  }
}

TEST_CASE("the norm is that of one rank, each element counted once") {
  // The bound is far below the norm: each step is only as long as expected if the norm is right.
  const GptJob job("[optim]\nname = sgd\nlr = 1\nclip_norm = 0.01\n");
  const auto one = job.losses_of_one("max_steps = 5\n");
  for (const Mesh& mesh : {Mesh{2, 2, 1}, Mesh{2, 1, 2}, Mesh{2, 2, 2}, Mesh{1, 2, 2}, Mesh{2, 2, 1, "", 2},
                           Mesh{4, 2, 1, "shard_group = 2\n", 3}, Mesh{2, 2, 2, "", 2}, Mesh{2, 2, 2, "", 3}})
    CHECK(difference(one, job.losses(mesh, "max_steps = 5\n"), 5) < 1e-6);
}

TEST_CASE("a checkpoint of each mesh with divided updates goes on under the next one") {
  const GptJob job(adamw);
  std::vector<Mesh> meshes = factorisations(4);
  for (const Mesh& mesh : factorisations(8)) meshes.push_back(mesh);
  for (const int zero : {2, 3, 1, 3, 2}) meshes.push_back({2, 2, 1, "", zero});
  for (const int zero : {3, 1, 2, 3}) meshes.push_back({2, 2, 2, "", zero});
  meshes.push_back({4, 1, 2, "shard_group = 2\n", 3});
  meshes.push_back({4, 2, 1, "shard_group = 2\n", 3});
  const auto train = [](std::size_t steps) {
    return "seed = 1\nema = 0.9\ncheck_replicas = true\nmax_steps = " + std::to_string(steps) + "\n";
  };
  const std::size_t steps = 2 * (meshes.size() + 1);
  const std::string eval = "[eval]\nevery_epochs = 1\n";
  const double expected = job.run_one(train(steps), eval).evaluation.loss;
  const auto undisturbed = job.losses_of_one(train(steps));
  for (std::size_t m = 0; m < meshes.size(); ++m) job.run(meshes[m], train(2 * (m + 1)), job.checkpoint_keys());
  const auto last = job.run_one(train(steps), eval + job.checkpoint_keys());
  CHECK(std::abs(last.evaluation.loss / expected - 1) < 1e-4);
  CHECK(difference(undisturbed, job.recorded_losses(), steps) < 1e-4);
}

TEST_CASE("a run with divided updates that stops and goes on has the bits of one that does not") {
  for (const Mesh& mesh : {Mesh{2, 2, 1}, Mesh{2, 1, 2, "split = h.3\n"}, Mesh{2, 2, 2, "split = h.3\n"},
                           Mesh{2, 2, 1, "", 2}, Mesh{2, 2, 1, "", 3}, Mesh{4, 2, 1, "shard_group = 2\n", 3},
                           Mesh{2, 1, 2, "split = h.3\n", 2}, Mesh{2, 2, 2, "split = h.3\n", 3}}) {
    INFO(mesh.keys());
    const GptJob job(adamw);
    const std::string train = "ema = 0.9\nprecision = bf16\n";
    const auto undisturbed = job.run(mesh, train + "max_steps = 6\n");
    job.run(mesh, train + "max_steps = 3\n", job.checkpoint_keys());
    const auto resumed = job.run(mesh, train + "max_steps = 6\n", job.checkpoint_keys());
    CHECK(resumed.parameter_digest == undisturbed.parameter_digest);
    CHECK(resumed.evaluation.loss == undisturbed.evaluation.loss);  // the loss of the averages
  }
}

TEST_CASE("sixteen bits train a mesh with divided updates about as one rank, and skip the same steps") {
  const GptJob job(adamw);
  for (const std::string precision : {"bf16\n", "fp16\nloss_scale = 1e12\n"}) {
    INFO(precision);
    const std::string train = "max_steps = 12\nprecision = " + precision;
    const auto one = job.losses_of_one(train);
    for (const int zero : {1, 2, 3})
      for (const std::string schedule : {"1f1b", "zero_bubble"})
        CHECK(difference(
                  one, job.losses({2, 2, 2, "schedule = " + schedule + "\n", zero}, train + "check_replicas = true\n"),
                  12) < 2e-2);
  }
}

TEST_CASE("the averages of a mesh with divided updates are those of one rank") {
  const GptJob job(clipped);
  const std::string train = "max_steps = 6\nema = 0.5\n", eval = "[eval]\nevery_epochs = 1\n";
  const double one = job.run_one(train, eval).evaluation.loss;
  CHECK(one != job.run_one("max_steps = 6\n", eval).evaluation.loss);
  for (const Mesh& mesh :
       {Mesh{2, 2, 1}, Mesh{2, 1, 2}, Mesh{2, 2, 2}, Mesh{2, 2, 1, "", 3}, Mesh{2, 1, 2, "", 2}, Mesh{2, 2, 2, "", 3}})
    CHECK(std::abs(job.run(mesh, train, eval).evaluation.loss / one - 1) < 1e-6);
}
