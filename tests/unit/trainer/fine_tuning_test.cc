#include <set>

#include "common/atomic_file.h"
#include "common/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/nn/layers.h"
#include "worker/nn/models.h"
#include "worker/nn/state.h"
#include "tests/numerics/training_job.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

namespace fs = std::filesystem;

// 100 samples give 13 steps an epoch for one rank, 7 for two.
std::string job(const std::string& model, const std::string& more = "", int epochs = 2) {
  return "[data]\nname = random\nshape = 6\noutputs = 3\nlabels = true\nsamples = 100\ntest_samples = 40\n"
         "[train]\nbatch_size = 8\ncheck_replicas = true\nepochs = " +
         std::to_string(epochs) + "\n[model]\nname = mlp\nhidden = 8\n" + model + more;
}

// Returns a model of the same kind with other random numbers and that many outputs.
std::unique_ptr<nn::Module> other_model(std::int64_t outputs = 3, std::vector<std::int64_t> hidden = {8}) {
  Generator generator(99);
  return nn::make_model("mlp", {.input = {6}, .outputs = outputs, .hidden = std::move(hidden)}, generator);
}

std::map<std::string, std::string> bytes_in(const fs::path& file) {
  const checkpoint::SafetensorsFile in(file);
  std::map<std::string, std::string> all;
  for (const auto& info : in.tensors()) {
    std::string& bytes = all[info.name];
    bytes.resize(info.bytes());
    in.read(info, std::as_writable_bytes(std::span(bytes)));
  }
  return all;
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

std::string checkpoints_in(const TempDir& dir, const std::string& more = "") {
  return "[checkpoint]\ndir = " + (dir / "ckpt").string() + "\n" + more;
}

struct Evaluations {
  std::vector<double> losses;
  std::size_t lowest = 0;
};
Evaluations evaluations_in(const fs::path& metrics) {
  Evaluations found;
  std::istringstream lines(read_whole_file(metrics));
  for (std::string line; std::getline(lines, line);) {
    const auto record = boost::json::parse(line).as_object();
    if (record.contains("eval_loss")) found.losses.push_back(record.at("eval_loss").to_number<double>());
  }
  for (std::size_t i = 0; i < found.losses.size(); ++i)
    if (found.losses[i] < found.losses[found.lowest]) found.lowest = i;
  return found;
}

}  // namespace

TEST_CASE("training begins with the weights of a file, and what is frozen stays as it is at every rank") {
  const TempDir dir;
  nn::save_state(*other_model(), dir / "weights.safetensors");
  const std::string weights = "weights = " + (dir / "weights.safetensors").string() + "\n";
  const auto digests = TrainingJob(job(weights + "freeze = fc1\n", checkpoints_in(dir))).run(2);
  CHECK(digests[0].parameter_digest == digests[1].parameter_digest);
  const auto before = bytes_in(dir / "weights.safetensors");
  const auto after = bytes_in(dir / "ckpt/step_000014/model.safetensors");
  CHECK(after.at("fc1.weight") == before.at("fc1.weight"));
  CHECK(after.at("fc1.bias") == before.at("fc1.bias"));
  CHECK(after.at("fc2.weight") != before.at("fc2.weight"));
  // The optimizer has no state of frozen parameters.
  for (const auto& [name, bytes] : bytes_in(dir / "ckpt/step_000014/optimizer.safetensors"))
    CHECK_THAT(name, Catch::StartsWith("fc2."));
}

TEST_CASE("weights are taken by prefix, and a last layer of its own begins with random numbers") {
  const TempDir dir;
  nn::Sequential whole;
  whole.add("body", other_model(7));
  nn::save_state(whole, dir / "weights.safetensors");
  const std::string weights = "weights = " + (dir / "weights.safetensors").string() + "\nweights_prefix = body.\n";
  TrainingJob(job(weights + "weights_except = fc2\nfreeze = fc1.*\n", checkpoints_in(dir))).run(1);
  const auto after = bytes_in(dir / "ckpt/step_000026/model.safetensors");
  CHECK(after.at("fc1.weight") == bytes_in(dir / "weights.safetensors").at("body.fc1.weight"));
  CHECK_THROWS_WITH(TrainingJob(job(weights)).run(1),
                    Catch::StartsWith("model.weights = ") &&
                        Catch::Contains("tensor body.fc2.weight has shape [7, 8], the model needs [3, 8]"));
}

TEST_CASE("weights that do not fit, and patterns that mean nothing, are errors that name key and file") {
  const TempDir dir;
  const auto file = (dir / "weights.safetensors").string();
  const std::string weights = "weights = " + file + "\n";
  const auto start = "model.weights = " + file + ": ";
  CHECK_THROWS_WITH(TrainingJob(job(weights)).run(2), Catch::StartsWith(start));
  nn::save_state(*other_model(3, {8, 8}), file);
  CHECK_THROWS_WITH(TrainingJob(job(weights)).run(1), Catch::StartsWith(start) && Catch::Contains("fc2.weight"));
  write_file_atomically(file, "no tensors");
  CHECK_THROWS_WITH(TrainingJob(job(weights)).run(1), Catch::StartsWith(start) && Catch::Contains(file));
  nn::save_state(*other_model(), file);
  CHECK_THROWS_WITH(TrainingJob(job(weights + "weights_except = fc3\n")).run(1),
                    Catch::Equals("model.weights_except = fc3: the model has no parameter fc3"));
  CHECK_THROWS_WITH(TrainingJob(job("freeze = fc1 fc7.*\n")).run(1),
                    Catch::Equals("model.freeze = fc1 fc7.*: the model has no parameter fc7.*"));
  CHECK_THROWS_WITH(TrainingJob(job("freeze = *\n")).run(1),
                    Catch::Equals("model.freeze = *: nothing is left to train"));
}

TEST_CASE("a fine-tuned run that stopped and went on has the bits of one that never stopped") {
  const TempDir dir;
  nn::save_state(*other_model(), dir / "weights.safetensors");
  const std::string model = "weights = " + (dir / "weights.safetensors").string() + "\nfreeze = fc1\n";
  const auto expected = TrainingJob(job(model)).run(2)[0].parameter_digest;
  const auto saved = job(model, checkpoints_in(dir, "every_steps = 3\nkeep_best = true\n"));
  for (const std::string steps : {"5", "8", "14"}) {
    const auto summary = TrainingJob(saved + "[train]\nmax_steps = " + steps + "\n").run(2)[0];
    if (steps == "14") CHECK(summary.parameter_digest == expected);
  }
}

TEST_CASE("the checkpoint with the lowest loss of an evaluation is kept beside the newest") {
  const TempDir dir;
  // With this rate the loss rises again.
  const auto text = [&](int epochs, const std::string& more = "") {
    return job("",
               "[optim]\nname = sgd\nlr = 1.5\nmomentum = 0.9\n[metrics]\nfile = " + (dir / "metrics").string() + "\n" +
                   checkpoints_in(dir, "keep = 1\nkeep_best = true\n" + more),
               epochs);
  };
  TrainingJob(text(8)).run(2);
  const auto [losses, lowest] = evaluations_in(dir / "metrics");
  REQUIRE(losses.size() == 8);
  REQUIRE(lowest < 7);
  CHECK(names_in(dir / "ckpt") == std::set<std::string>{"best", "step_000056"});
  checkpoint::Checkpoints checkpoints({.folder = dir / "ckpt"});
  const auto best = checkpoints.best();
  REQUIRE(best);
  CHECK(best->state.step == 7 * (static_cast<std::int64_t>(lowest) + 1));
  CHECK(*best->state.best_loss == Approx(losses[lowest]).epsilon(1e-12));
  CHECK(checkpoints.newest()->state.step == 56);

  // A run that resumes from the newest checkpoint remembers the best loss.
  TrainingJob(text(9)).run(2);
  if (evaluations_in(dir / "metrics").lowest == lowest) CHECK(checkpoints.best()->state.step == best->state.step);
  CHECK(checkpoints.newest()->state.step == 63);

  // From the best one by name, the run repeats the steps after it, with the same bits.
  const auto newest = bytes_in(dir / "ckpt/step_000063/model.safetensors");
  fs::rename(dir / "ckpt/step_000063", dir / "old");
  TrainingJob(text(9, "resume = best\n")).run(2);
  CHECK(bytes_in(dir / "ckpt/step_000063/model.safetensors") == newest);
  fs::remove_all(dir / "ckpt/best");
  CHECK_THROWS_WITH(TrainingJob(text(9, "resume = best\n")).run(2),
                    Catch::Equals("checkpoint.resume = best, but checkpoint.dir holds no folder best"));
}
