// Settings of optimizers, hooks and balance on products of the axes of the mesh, beside the same job at one rank.
#include "tests/numerics/composed_job.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

const std::string experts = "experts = 4\nload_balancing_loss = 0\n";

std::string whole_tensors(const std::string& name) {
  return "[optim]\nname = " + name + "\nweight_decay = 0.01\ndecay_one_dimensional = false\n" +
         (name == "lamb"   ? "lr = 1e-2\n"
          : name == "lars" ? "lr = 1\nmomentum = 0.9\n"
                           : "lr = 1e-2\nmomentum = 0.9\n");
}

}  // namespace

TEST_CASE("optimizers that need whole tensors learn from parts of them as at one rank") {
  const std::string name = GENERATE("lamb", "lars", "muon");
  for (const std::string& model : {std::string("dropout = 0.1\n"), experts}) {
    const Job job(whole_tensors(name) + "clip_norm = 0.5\n", model);
    const auto one = job.losses_of_one("max_steps = 10\n");
    CHECK(one[9] < one[0]);
    const int expert = model == experts ? 2 : 1;
    for (const Mesh& mesh :
         {Mesh{1, 2, 1, 1, 1, "", expert}, Mesh{1, 2, 1, 1, 2, "", expert}, Mesh{1, 2, 1, 2, 3, "", expert},
          Mesh{1, 1, 1, 2, 0, "", expert}, Mesh{2, 2, 1, 1, 3, "", expert},
          Mesh{2, 1, 1, 2, 1, "sequence = true\n", expert}, Mesh{1, 1, 2, 2, 3, "", expert}}) {
      INFO(name << ' ' << mesh.keys());
      CHECK(difference(one, job.losses(mesh, "max_steps = 10\ncheck_replicas = true\n", small_buckets), 10) < 1e-5);
    }
  }
}

TEST_CASE("a checkpoint of an optimizer of parts of tensors goes on under another layout") {
  const std::string name = GENERATE("lamb", "lars", "muon");
  INFO(name);
  check_resumed(Job(whole_tensors(name), experts),
                {Mesh{1, 2, 1, 1, 3, "", 2}, Mesh{1, 1, 1, 1}, Mesh{2, 1, 1, 2, 1}, Mesh{1, 2, 1, 2, 2}});
}

TEST_CASE("gradients that are divided are sent in 16 bits, within shard groups and between them") {
  const std::string hook = GENERATE("fp16", "bf16");
  for (const std::string& model : {std::string("dropout = 0.1\n"), experts}) {
    const Job job(clipped, model);
    const auto one = job.losses_of_one("max_steps = 10\n");
    const int expert = model == experts ? 2 : 1;
    for (const int zero : {2, 3})
      for (const std::string group : {"", "shard_group = 2\n"}) {
        const Mesh mesh{1, 4, 1, 1, zero, "hook = " + hook + "\n" + group, expert};
        INFO(mesh.keys());
        const auto losses = job.losses(mesh, "max_steps = 10\ncheck_replicas = true\n");
        CHECK(difference(one, losses, 10) > 1e-7);
        CHECK(difference(one, losses, 10) < 1e-4);
      }
  }
}

TEST_CASE("hooks that round a bucket as a whole go with divided layers and experts") {
  const auto [hook, tolerance] =
      GENERATE(std::pair("int8", 1e-2), std::pair("int8_channel", 1e-2), std::pair("int4", 3e-2),
               std::pair("topk\ntopk_fraction = 0.5", 3e-2), std::pair("powersgd\nstart_powerSGD_iter = 2", 3e-2),
               std::pair("bf16+int8", 1e-2));
  const std::string more = std::string("hook = ") + hook + "\n", train = "max_steps = 10\ncheck_replicas = true\n";
  for (const std::string& model : {std::string("dropout = 0.1\n"), experts}) {
    const Job job(clipped, model);
    const auto one = job.losses_of_one("max_steps = 10\n");
    const int expert = model == experts ? 2 : 1;
    for (const Mesh& mesh : {Mesh{1, 2, 1, 2, 0, more, expert}, Mesh{1, 2, 1, 2, 0, more + "sequence = true\n", expert},
                             Mesh{2, 2, 1, 1, 1, more, expert}}) {
      INFO(mesh.keys());
      const auto losses = job.losses(mesh, train);
      CHECK(difference(one, losses, 10) > 1e-7);
      CHECK(difference(one, losses, 10) < tolerance);
    }
  }
}

TEST_CASE("the signs of Adam's momentum are averaged where layers, experts and stages are divided") {
  const std::string more = "hook = onebit\nfreeze_step = 5\n", train = "max_steps = 10\ncheck_replicas = true\n";
  for (const std::string& model : {std::string("dropout = 0.1\n"), experts}) {
    const Job job(adamw, model);
    const auto one = job.losses_of_one("max_steps = 10\n");
    const int expert = model == experts ? 2 : 1;
    for (const Mesh& mesh : {Mesh{1, 2, 1, 2, 0, more, expert}, Mesh{1, 2, 1, 2, 0, more + "sequence = true\n", expert},
                             Mesh{2, 2, 1, 1, 0, more, expert}}) {
      INFO(mesh.keys());
      const auto losses = job.losses(mesh, train);
      CHECK(difference(one, losses, 5) < 1e-5);  // gradients are averaged as they are before freeze_step
      CHECK(difference(one, losses, 10) > 1e-7);
      CHECK(difference(one, losses, 10) < 3e-2);
    }
  }
}

TEST_CASE("what a hook keeps of divided layers and experts is the same after a stop") {
  const std::string hook = GENERATE("int4", "powersgd\nstart_powerSGD_iter = 2", "onebit\nfreeze_step = 2");
  const std::string more = "hook = " + hook + "\n";
  for (const int expert : {1, 2}) {
    const Job job(adamw, expert > 1 ? experts : "");
    const Mesh mesh{1, 2, 1, 2, 0, more, expert};
    INFO(mesh.keys());
    const auto undisturbed = job.run(mesh, "max_steps = 6\n").parameter_digest;
    job.run(mesh, "max_steps = 3\n", job.checkpoint_keys());
    CHECK(job.run(mesh, "max_steps = 6\n", job.checkpoint_keys()).parameter_digest == undisturbed);
    const Mesh other{1, 1, 1, 2, 0, more, expert};
    CHECK(job.run(other, "max_steps = 8\n", job.checkpoint_keys()).steps == 8);
  }
}

TEST_CASE("shares by speed go with ranks that have the same samples, and with experts in stages") {
  const Job job(clipped, experts);
  const auto one = job.losses_of_one("max_steps = 45\n");
  for (const Mesh& mesh : {Mesh{1, 2, 1, 2, 1, "balance = true\n"}, Mesh{1, 2, 2, 1, 0, "balance = true\n"},
                           Mesh{2, 1, 1, 1, 0, "balance = true\n", 2}}) {
    INFO(mesh.keys());
    CHECK(difference(one, job.losses(mesh, "max_steps = 45\n"), 45) < 1e-5);
  }
}

TEST_CASE("what is said of passes and of the order of reductions goes with experts") {
  const Job job(clipped, experts);
  const auto one = job.losses_of_one("max_steps = 10\n");
  for (const std::string each :
       {"find_unused_parameters = true\n", "static_graph = true\n",
        "delay_all_reduce_named_params = h.0.attn.c_attn.weight\nparam_to_hook_all_reduce = h.1.ln_1.weight\n"}) {
    INFO(each);
    CHECK(difference(one, job.losses({1, 2, 1, 1, 0, each, 2}, "max_steps = 10\ncheck_replicas = true\n"), 10) < 1e-6);
  }
  for (const int zero : {1, 2, 3})
    for (const std::string each : {"find_unused_parameters = true\n", "static_graph = true\n"}) {
      INFO(zero << ' ' << each);
      CHECK(difference(one, job.losses({1, 2, 1, 1, zero, each, 2}, "max_steps = 10\ncheck_replicas = true\n"), 10) <
            1e-6);
      CHECK(difference(one, job.losses({2, 2, 1, 1, zero, each}, "max_steps = 10\ncheck_replicas = true\n"), 10) <
            1e-6);
    }
  const std::string apart =
      "delay_all_reduce_named_params = h.0.mlp.c_fc.weight\nparam_to_hook_all_reduce = h.1.ln_1.weight\n";
  CHECK_THROWS_WITH(job.run({1, 2, 1, 1, 0, apart, 2}, "max_steps = 1\n"),
                    Catch::StartsWith("parallel.delay_all_reduce_named_params: h.0.mlp.c_fc.weight cannot wait for "));
}

TEST_CASE("statistics of batches are those of the samples of all ranks where layers are divided") {
  const LayoutJob job("[model]\nname = cnn_bn\n" + digits + sgd);
  const std::string train = "max_steps = 10\nglobal_batch_size = 32\n";
  const auto one = job.losses(1, train, "");
  CHECK(difference(one, job.losses(4, train, "tensor = 2\nsync_batch_norm = true\n"), 10) < 1e-6);
  CHECK(difference(one, job.losses(4, train, "tensor = 2\n"), 10) > 1e-4);
}

TEST_CASE("parameters that ranks train by themselves go with divided updates and layers") {
  const Job job(clipped, "dropout = 0.1\n");
  const std::string train = "max_steps = 10\ncheck_replicas = true\n";
  const std::string own = "ignored_parameters = h.1.mlp.c_fc.weight h.0.ln_1.bias\n";
  const auto expected = job.losses({1, 2, 1, 1, 0, own}, train);
  CHECK(difference(expected, job.losses({1, 2}, train), 10) > 1e-6);
  for (const Mesh& mesh :
       {Mesh{1, 2, 1, 1, 1, own}, Mesh{1, 2, 1, 1, 2, own}, Mesh{1, 2, 1, 1, 3, own}, Mesh{2, 2, 1, 1, 1, own},
        Mesh{2, 2, 1, 1, 3, own}, Mesh{1, 2, 1, 2, 0, own}, Mesh{1, 2, 1, 2, 1, own + "sequence = true\n"}}) {
    INFO(mesh.keys());
    CHECK(difference(expected, job.losses(mesh, train), 10) < 1e-6);
  }
}

TEST_CASE("a model that is trained to be quantized divides positions, with the ranges of rank 0") {
  const Job job(sgd, "");
  const std::string train = "max_steps = 10\nquantization_aware = true\n";
  const auto one = job.losses_of_one(train);
  const auto losses = job.losses({1, 2, 2, 1, 1}, train);
  CHECK(losses[9] < losses[0]);
  CHECK(difference(one, losses, 10) < 1e-2);
}

TEST_CASE("slices of a model that is trained to be quantized are rounded as the whole model is") {
  const std::string train = "max_steps = 10\nquantization_aware = true\n";
  const Job gpt(sgd, "");
  const auto one = gpt.losses_of_whole_batches(train);
  for (const Mesh& mesh : {Mesh{1, 1, 1, 2}, Mesh{1, 1, 1, 4}, Mesh{1, 1, 1, 2, 0, "sequence = true\n"}}) {
    INFO(mesh.keys());
    CHECK(difference(one, gpt.losses(mesh, train + "check_replicas = true\n"), 10) < 5e-6);
  }
  CHECK(difference(one, gpt.losses_of_whole_batches("max_steps = 10\n"), 10) > 2e-5);

  const LayoutJob mlp("[model]\nname = mlp\nhidden = 64 64 64\n" + digits + sgd);
  const std::string batch = "global_batch_size = 32\n";
  CHECK(difference(mlp.losses(1, batch + train, ""), mlp.losses(2, batch + train, "tensor = 2\n"), 10) < 5e-6);
}

TEST_CASE("the ranges of a model that is trained to be quantized go on under another layout") {
  const Job job(adamw, "");
  const std::string train = "quantization_aware = true\ncheck_replicas = true\n";
  const Mesh sliced{1, 2, 1, 2, 1};
  const auto undisturbed = job.run(sliced, train + "max_steps = 6\n").parameter_digest;
  job.run(sliced, train + "max_steps = 3\n", job.checkpoint_keys());
  CHECK(job.run(sliced, train + "max_steps = 6\n", job.checkpoint_keys()).parameter_digest == undisturbed);
  CHECK(job.run({2, 2}, train + "max_steps = 8\n", job.checkpoint_keys()).steps == 8);
  CHECK(job.run(sliced, train + "max_steps = 10\n", job.checkpoint_keys()).steps == 10);
}
