#include "common/atomic_file.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/names.h"
#include "tests/process/training.h"
#include "tests/support/catch.h"

// ddprun-worker export
using namespace ddprun;
using namespace ddprun::testing;

namespace {

constexpr std::chrono::seconds bound{120};

Child::Result exported(const Words& words) {
  Words all{DDPRUN_WORKER, "export"};
  all.insert(all.end(), words.begin(), words.end());
  return Child(all).wait(bound);
}

}  // namespace

TEST_CASE("the exported model of a job predicts what the checkpoint's model predicts") {
  const bool parts = GENERATE(false, true);  // each rank has saved one
  const Training training;
  Words overrides{"--train.epochs=1", "--checkpoint.every_steps=0", "--train.ema=0.9"};
  if (parts) overrides.emplace_back("--parallel.zero=3");
  auto job = training.job(parts ? Words{"--standalone", "--nproc_per_node=2"} : Words{}, overrides);
  if (!parts) job.front() = DDPRUN_WORKER;
  REQUIRE(Child(job).wait(bound).code == 0);
  const std::string folder = training.folder / "checkpoints", file = training.folder / "model.safetensors";
  const std::string checkpoint = folder + (parts ? "/step_000050" : "/step_000100");
  CHECK(std::filesystem::exists(checkpoint + "/part_00001.safetensors") == parts);
  const auto result = exported({folder, file});
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(result.out == file + ": the averages of the parameters of " + checkpoint + "\n");

  const auto evaluated = [&](const Words& from) {
    Words words{DDPRUN_WORKER, "evaluate", training.folder / "train.cfg"};
    words.insert(words.end(), from.begin(), from.end());
    return Child(words).wait(bound).out;
  };
  const auto expected = evaluated({});
  CHECK(expected.find("test loss") != std::string::npos);
  CHECK(evaluated({"--checkpoint.dir=", "--checkpoint.every_steps=0", "--model.weights=" + file}) == expected);

  const auto one = exported({checkpoint, file + "2"});
  CHECK(one.code == 0);
  CHECK(read_whole_file(file + "2") == read_whole_file(file));
}

TEST_CASE("an export of a checkpoint whose part is missing names the file in one line") {
  const Training training;
  REQUIRE(Child(training.job({"--standalone", "--nproc_per_node=2"}, {"--parallel.zero=1", "--train.max_steps=7"}))
              .wait(bound)
              .code == 0);
  const auto checkpoint = training.folder / "checkpoints/step_000007", part = checkpoint / "part_00001.safetensors";
  std::filesystem::remove(part);
  const auto result = exported({checkpoint, training.folder / "model.safetensors"});
  CHECK(result.code == 2);
  CHECK(result.err == "[ddprun-worker] error: cannot open " + part.string() + ": No such file or directory\n");
}

TEST_CASE("an export of damaged placements whose hash is right names the file in one line") {
  const Training training;
  REQUIRE(Child(training.job({"--standalone", "--nproc_per_node=2"}, {"--parallel.zero=1", "--train.max_steps=7"}))
              .wait(bound)
              .code == 0);
  const auto checkpoint = training.folder / "checkpoints/step_000007", path = checkpoint / "manifest.json";
  const auto placements = checkpoint / checkpoint::placements_file;
  write_file_atomically(placements, "{}");
  auto manifest = checkpoint::manifest_from_json(checkpoint::read_file(path), path.string());
  manifest.files[checkpoint::placements_file] = checkpoint::digest_of_file(placements);
  write_file_atomically(path, to_json(manifest));
  const auto result = exported({checkpoint, training.folder / "model.safetensors"});
  CHECK(result.code == 2);
  CHECK(result.err == "[ddprun-worker] error: " + placements.string() + ": member format is missing\n");
}

TEST_CASE("an export says what is wrong in one line") {
  const TempDir dir;
  const std::string file = dir / "model.safetensors";
  const auto usage = exported({dir.path()});
  CHECK(usage.code == 2);
  CHECK(usage.err == "[ddprun-worker] error: expected: ddprun-worker export CHECKPOINT FILE\n");
  const auto none = exported({dir.path(), file});
  CHECK(none.code == 2);
  CHECK(none.err == "[ddprun-worker] error: " + dir.path().string() + " is no checkpoint, and holds none\n");
  const auto absent = exported({dir / "absent", file});
  CHECK(absent.code == 2);
  CHECK(absent.err == "[ddprun-worker] error: " + (dir / "absent").string() + ": there is no such folder\n");
  std::filesystem::create_directory(dir / "step_000001");
  write_file_atomically(dir / "step_000001/manifest.json", "{}");
  const std::string inside = dir / "step_000001/model.safetensors";
  const auto over = exported({dir.path(), inside});
  CHECK(over.code == 2);
  CHECK(over.err ==
        "[ddprun-worker] error: " + inside + ": that folder is a checkpoint, whose files stay as they are\n");
  const auto damaged = exported({dir / "step_000001", file});
  CHECK(damaged.code == 2);
  CHECK(damaged.err.find("step_000001/manifest.json") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(file));
}
