// Jobs on products of all axes of the mesh, beside the same job at one rank. A run takes some of the products, by
// fixed seeds, which a failure names; with DDPRUN_DRAWS=all in the environment it takes all of them.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/numerics/composed_job.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

// Returns the products that have several axes of more than one rank, with every way to divide the state.
std::vector<Mesh> products(int ranks) {
  std::vector<Mesh> all;
  for (int pipeline = 1; pipeline <= ranks; pipeline *= 2)
    for (int context = 2; pipeline * context <= ranks; context *= 2)
      for (int tensor = 1; pipeline * context * tensor <= ranks; tensor *= 2)
        for (int zero = 0; zero <= 3; ++zero) {
          const int data = ranks / pipeline / context / tensor;
          if (pipeline * tensor == 1 && zero == 0) continue;
          all.push_back({pipeline, data, context, tensor, zero});
          if (tensor > 1) all.push_back({pipeline, data, context, tensor, zero, "sequence = true\n"});
        }
  return all;
}

// Returns the products for a model with experts, most of which divide them.
std::vector<Mesh> products_with_experts(int ranks) {
  std::vector<Mesh> all;
  for (int expert = 1; expert <= std::min(ranks, 4); expert *= 2)
    for (int pipeline = 1; pipeline * expert <= ranks; pipeline *= 2)
      for (int context = 1; pipeline * expert * context <= ranks; context *= 2)
        for (int tensor = 1; pipeline * expert * context * tensor <= ranks; tensor *= 2)
          for (int zero = 0; zero <= 3; ++zero) {
            const int data = ranks / pipeline / expert / context / tensor;
            if (pipeline > 4) continue;  // there are seven pieces with parameters
            all.push_back({pipeline, data, context, tensor, zero, "", expert});
            if (tensor > 1) all.push_back({pipeline, data, context, tensor, zero, "sequence = true\n", expert});
          }
  return all;
}

// Returns so many of them, or all.
std::vector<Mesh> drawn(std::vector<Mesh> all, std::size_t count, std::uint32_t seed) {
  const char* given = std::getenv("DDPRUN_DRAWS");
  if (given && std::string(given) == "all") return all;
  std::mt19937 generator(seed);
  for (std::size_t i = 0; i < std::min(count, all.size()); ++i) {
    const std::size_t other = i + generator() % (all.size() - i);
    if (other != i) std::swap(all[i], all[other]);
  }
  all.resize(std::min(count, all.size()));
  return all;
}

void check_learn_as_one(const Job& job, const std::vector<Mesh>& meshes) {
  const auto one = job.losses_of_one("max_steps = 10\n");
  CHECK(one[9] < one[0]);
  for (const Mesh& mesh : meshes) {
    INFO(mesh.keys());
    CHECK(difference(one, job.losses(mesh, "max_steps = 10\ncheck_replicas = true\n", small_buckets), 10) < 1e-6);
  }
}

// Begins anew after some meshes, since the text ends after 74 steps.
void check_all_resumed(const std::string& model, const std::vector<Mesh>& meshes) {
  constexpr std::ptrdiff_t most_meshes = 20;
  for (auto first = meshes.begin(); first != meshes.end();) {
    const auto last = first + std::min(most_meshes, meshes.end() - first);
    check_resumed(Job(adamw, model), {first, last});
    first = last;
  }
}

}  // namespace

TEST_CASE("products of positions, layers, stages and divided state learn as one rank") {
  const int ranks = GENERATE(4, 8);
  const std::uint32_t seed = 1;
  INFO("seed " << seed);
  check_learn_as_one(Job(clipped), drawn(products(ranks), 6, seed));
}

TEST_CASE("products with experts learn as one rank") {
  const int ranks = GENERATE(4, 8);
  const std::uint32_t seed = 4;
  INFO("seed " << seed);
  // The shares of choices are those of a micro-batch: without their loss they make no difference.
  check_learn_as_one(Job(clipped, "experts = 4\nload_balancing_loss = 0\nrouter_z_loss = 0.01\ndropout = 0.1\n"),
                     drawn(products_with_experts(ranks), 6, seed));
}

TEST_CASE("the norm of a product with experts is that of one rank, each element counted once") {
  // The bound is far below the norm: each step is only as long as expected if the norm is right.
  const Job job("[optim]\nname = sgd\nlr = 1\nclip_norm = 0.01\n", "experts = 4\nload_balancing_loss = 0\n");
  const auto one = job.losses_of_one("max_steps = 5\n");
  for (const Mesh& mesh :
       {Mesh{1, 2, 1, 1, 1, "", 2}, Mesh{1, 1, 1, 2, 0, "", 2}, Mesh{1, 1, 2, 2, 1, "", 2}, Mesh{2, 1, 2, 1, 1, "", 2},
        Mesh{2, 2, 1, 1, 0, "", 2}, Mesh{2, 1, 1, 2, 1, "", 2}, Mesh{1, 2, 1, 1, 2, "", 2}, Mesh{1, 2, 1, 2, 3, "", 2},
        Mesh{2, 1, 2, 1, 3, "", 2}, Mesh{1, 4, 1, 1, 3, "shard_group = 4\n", 2}}) {
    INFO(mesh.keys());
    CHECK(difference(one, job.losses(mesh, "max_steps = 5\n"), 5) < 1e-6);
  }
}

TEST_CASE("experts go with every schedule, and with blocks that are computed again") {
  const Job job(clipped, "experts = 4\nrouter_z_loss = 0.1\nload_balancing_loss = 0\ndropout = 0.1\n");
  const auto one = job.losses_of_one("max_steps = 10\n");
  for (const std::string schedule : {"gpipe", "1f1b", "interleaved\nvirtual_stages = 2", "zero_bubble"})
    for (const std::string recompute : {"none", "blocks"}) {
      const Mesh mesh{2, 1, 1, 1, 1, "schedule = " + schedule + "\n", 2};
      INFO(mesh.keys() << recompute);
      CHECK(difference(one, job.losses(mesh, "max_steps = 10\nrecompute = " + recompute + "\n"), 10) < 1e-6);
    }
}

TEST_CASE("gradients of experts in 16 bits are those of one rank but for rounding") {
  const Job job(clipped, "experts = 4\nload_balancing_loss = 0\n");
  const auto one = job.losses_of_one("max_steps = 10\n");
  for (const std::string hook : {"fp16", "bf16"})
    for (const int zero : {0, 1}) {
      INFO(hook << ", zero " << zero);
      const auto losses =
          job.losses({1, 2, 1, 1, zero, "hook = " + hook + "\n", 2}, "max_steps = 10\ncheck_replicas = true\n");
      CHECK(difference(one, losses, 10) > 1e-7);
      CHECK(difference(one, losses, 10) < 1e-4);
    }
}

TEST_CASE("gradients and parameters of experts are divided within groups of ranks, and by every schedule") {
  const Job job(clipped, "experts = 4\nrouter_z_loss = 0.1\nload_balancing_loss = 0\ndropout = 0.1\n");
  const auto one = job.losses_of_one("max_steps = 10\n");
  std::vector<Mesh> meshes{{1, 1, 1, 1, 3, "", 4}};  // no two ranks have the same experts
  for (const int zero : {2, 3}) {
    meshes.push_back({1, 4, 1, 1, zero, "shard_group = 4\n", 2});
    meshes.push_back({1, 2, 2, 1, zero, "shard_group = 4\n", 2});
    meshes.push_back({1, 4, 1, 1, zero, "shard_group = 2\n", 2});
    for (const std::string schedule : {"gpipe", "1f1b", "interleaved\nvirtual_stages = 2", "zero_bubble"})
      meshes.push_back({2, 2, 1, 1, zero, "schedule = " + schedule + "\n", 2});
  }
  meshes.push_back({2, 2, 1, 1, 3, "reshard_after_forward = false\n", 2});
  for (const Mesh& mesh : meshes)
    for (const std::string recompute : {"none", "blocks"}) {
      INFO(mesh.keys() << recompute);
      const std::string train = "max_steps = 10\ncheck_replicas = true\nrecompute = " + recompute + "\n";
      CHECK(difference(one, job.losses(mesh, train, small_buckets), 10) < 1e-6);
    }
}

TEST_CASE("the loss that keeps experts busy is that of all ranks' tokens on a product of axes") {
  const Job job(clipped, "experts = 4\nload_balancing_loss = 0.1\n");
  const auto one = job.losses_of_whole_batches("max_steps = 10\n");
  for (const Mesh& mesh : {Mesh{1, 1, 2, 1, 0, "", 2}, Mesh{1, 1, 1, 2, 0, "", 2}, Mesh{1, 2, 1, 2, 0, "", 2},
                           Mesh{1, 1, 2, 2, 0, "sequence = true\n", 2}})
    for (const std::string recompute : {"none", "blocks"}) {
      INFO(mesh.keys() << recompute);
      CHECK(difference(one, job.losses(mesh, "max_steps = 10\nrecompute = " + recompute + "\n"), 10) < 1e-6);
    }
}

// With 5 samples, and micro-batches of one, some ranks make passes that count for nothing.
TEST_CASE("ranks of a product without samples compute their experts for the others") {
  const Job job(sgd, "experts = 4\nload_balancing_loss = 0\n", "global_batch_size = 5\n");
  const auto one = job.losses_of_whole_batches("max_steps = 10\n");
  for (const Mesh& mesh : {Mesh{1, 2, 1, 1, 1, "", 2}, Mesh{1, 1, 2, 1, 0, "", 4}, Mesh{1, 2, 1, 2, 0, "", 2},
                           Mesh{1, 2, 1, 1, 2, "", 2}, Mesh{1, 4, 1, 1, 3, "", 2}})
    for (const std::string recompute : {"none", "blocks"}) {
      INFO(mesh.keys() << recompute);
      CHECK(difference(one, job.losses(mesh, "max_steps = 10\naccumulate = 2\nrecompute = " + recompute + "\n"), 10) <
            2e-6);
    }
}

TEST_CASE("divided positions go with every schedule, and with blocks that are computed again") {
  const Job job(clipped);
  const auto one = job.losses_of_one("max_steps = 10\n");
  for (const Mesh& mesh :
       {Mesh{2, 1, 2, 1, 0, "schedule = zero_bubble\n"},
        Mesh{2, 1, 2, 1, 1, "schedule = interleaved\nvirtual_stages = 2\n"},
        Mesh{2, 1, 2, 2, 1, "schedule = gpipe\nsequence = true\n"}, Mesh{2, 2, 2, 1, 1, "schedule = 1f1b\n"}})
    for (const std::string recompute : {"none", "blocks"}) {
      INFO(mesh.keys() << recompute);
      CHECK(difference(one, job.losses(mesh, "max_steps = 10\nrecompute = " + recompute + "\n"), 10) < 1e-6);
    }
}

TEST_CASE("an evaluation on a product of axes counts every token once") {
  const Job job(sgd);
  const std::string train = "max_steps = 3\n", eval = "[eval]\nevery_epochs = 1\nbatch_size = 3\n";
  const double one = job.run_one(train, eval).evaluation.loss;
  for (const Mesh& mesh : {Mesh{2, 1, 2, 1}, Mesh{1, 1, 2, 2}, Mesh{2, 1, 2, 2, 1}, Mesh{1, 2, 2, 2, 3}}) {
    INFO(mesh.keys());
    CHECK(std::abs(job.run(mesh, train, eval).evaluation.loss / one - 1) < 1e-6);
  }
}

TEST_CASE("the load of experts is that of all stages") {
  // Only the last of four blocks has experts.
  for (const std::string every : {"1", "4"}) {
    const Job job(sgd, "experts = 4\nload_balancing_loss = 0\nexpert_every = " + every + "\n");
    job.losses_of_one("max_steps = 3\n");
    const auto one = job.metric("expert_load");
    REQUIRE(one.size() == 3);
    CHECK(one[0] > 1.01);
    for (const Mesh& mesh : {Mesh{2, 1, 1, 1, 0, "split = h.2\n", 2}, Mesh{4, 1, 1, 1, 0, "split = h.1, h.2, h.3\n"},
                             Mesh{2, 1, 1, 2, 1, "split = h.2\n", 2}}) {
      INFO(mesh.keys() << every);
      job.losses(mesh, "max_steps = 3\n");
      const auto stages = job.metric("expert_load");
      for (std::size_t step = 0; step < 3; ++step) CHECK(stages.at(step) == Approx(one[step]).epsilon(1e-6));
    }
  }
}

TEST_CASE("a checkpoint of each product goes on under the next one") {
  auto meshes = drawn(products(4), 3, 2);
  for (const Mesh& mesh : drawn(products(8), 3, 3)) meshes.push_back(mesh);
  check_all_resumed("dropout = 0.1\n", meshes);
}

TEST_CASE("a checkpoint of each product with experts goes on under the next one") {
  auto meshes = drawn(products_with_experts(4), 3, 5);
  for (const Mesh& mesh : drawn(products_with_experts(8), 3, 6)) meshes.push_back(mesh);
  check_all_resumed("experts = 4\nload_balancing_loss = 0\n", meshes);
}

TEST_CASE("a run on a product that stops and goes on has the bits of one that does not") {
  for (const Mesh& mesh : {Mesh{2, 1, 2, 1, 1, "split = h.2\n"}, Mesh{1, 1, 2, 2, 3, "sequence = true\n"},
                           Mesh{2, 1, 2, 2, 1, "split = h.2\n"}, Mesh{2, 1, 1, 2, 1, "split = h.2\n", 2},
                           Mesh{1, 2, 1, 2, 3, "", 2}, Mesh{2, 2, 1, 1, 2, "split = h.2\n", 2}}) {
    INFO(mesh.keys());
    const Job job(adamw, mesh.expert > 1 ? "experts = 4\n" : "dropout = 0.1\n");
    const std::string train = "ema = 0.9\nprecision = bf16\n";
    const auto undisturbed = job.run(mesh, train + "max_steps = 6\n");
    job.run(mesh, train + "max_steps = 3\n", job.checkpoint_keys());
    const auto resumed = job.run(mesh, train + "max_steps = 6\n", job.checkpoint_keys());
    CHECK(resumed.parameter_digest == undisturbed.parameter_digest);
    CHECK(resumed.evaluation.loss == undisturbed.evaluation.loss);  // the loss of the averages
  }
}
