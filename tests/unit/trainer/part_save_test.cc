#include "worker/trainer/state/part_save.h"

#include <atomic>
#include <csignal>
#include <functional>
#include <set>
#include <sys/wait.h>
#include <unistd.h>

#include "common/error.h"
#include "worker/checkpoint/file_writer.h"
#include "worker/parallel/stored/placements_json.h"
#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

constexpr int ranks = 3;
using Before = std::function<void(std::string_view)>;

// A state of one tensor, of which each rank has a row of its step.
struct Rows {
  explicit Rows(std::int64_t step) : values(4, static_cast<float>(step)), state{.step = step, .world_size = ranks} {}

  checkpoint::Content content() const {
    return {.model = {{"weight", DType::float32, {1, 4}, std::as_bytes(std::span(values))}},
            .optimizer = {},
            .state = state};
  }
  static std::string placements() {
    const auto mesh = std::make_shared<const MeshShape>(std::vector<MeshAxis>{{"tensor", ranks}}, ranks);
    stored::StoredState state(ranks, false);
    state.of(stored::Kind::model) = stored::WriterChoice(ranks).choose(
        {{{"weight", {ranks, 4}, DType::float32}, {.mesh = mesh, .shards = {{.axis = "tensor"}}}}});
    return to_json(state);
  }

  std::vector<float> values;
  checkpoint::RunState state;
};

void save(const std::filesystem::path& folder, std::int64_t step, const std::function<Before(int rank)>& before = {}) {
  run_ranks(ranks, [&](ProcessGroup& group) {
    checkpoint::CheckpointOptions options{.folder = folder, .keep = 2};
    if (before) options.before = before(group.rank());
    const trainer::PartsFolder saved{checkpoint::Checkpoints(options), group.rank() == 0};
    trainer::save_parts(saved, group, checkpoint::step_name(step), Rows(step).content(), Rows::placements());
  });
}

std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

std::int64_t newest_step(const std::filesystem::path& folder) {
  return checkpoint::Checkpoints({.folder = folder}).newest()->state.step;
}

// Returns the number of acts of all ranks in a save of a third checkpoint.
int acts_of_save() {
  std::atomic<int> acts = 0;
  TempDir dir;
  for (const std::int64_t step : {1, 2}) save(dir.path(), step);
  save(dir.path(), 3, [&](int) { return [&](std::string_view) { ++acts; }; });
  return acts;
}

// Lets a process save a third checkpoint that is killed before an act of any of its ranks.
void save_until_killed(const std::filesystem::path& folder, int last_act) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::atomic<int> acts = 0;
    save(folder, 3, [&](int) {
      return [&](std::string_view) {
        if (++acts == last_act) ::kill(::getpid(), SIGKILL);
      };
    });
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
}

}  // namespace

TEST_CASE("a checkpoint of parts has a file of each rank, and older ones are removed") {
  TempDir dir;
  for (const std::int64_t step : {1, 2, 3}) save(dir.path(), step);
  CHECK(names_in(dir.path()) == std::set<std::string>{"step_000002", "step_000003"});
  CHECK(names_in(dir / "step_000003") == std::set<std::string>{"manifest.json", "part_00000.safetensors",
                                                               "part_00001.safetensors", "part_00002.safetensors",
                                                               "placements.json", "state.json"});
  CHECK(checkpoint::Checkpoints({.folder = dir.path()}).newest()->has_parts);
}

TEST_CASE("ranks killed at any act of a save of parts leave the newest complete checkpoint") {
  const int acts = acts_of_save();
  REQUIRE(acts >= 11);  // folder, three parts, placements, state, manifest, flush, publish, flush, prune
  int published = 0;
  for (int last_act = 1; last_act <= acts; ++last_act) {
    INFO("killed at act " << last_act);
    TempDir dir;
    for (const std::int64_t step : {1, 2}) save(dir.path(), step);
    save_until_killed(dir.path(), last_act);
    const auto newest = newest_step(dir.path());
    CHECK((newest == 2 || newest == 3));
    published += newest == 3 ? 1 : 0;
    save(dir.path(), 4);
    CHECK(newest_step(dir.path()) == 4);
    for (const auto& name : names_in(dir.path())) CHECK(name.starts_with("step_"));
  }
  CHECK(published >= 1);
  CHECK(published < acts);
}

TEST_CASE("a rank that cannot write its part ends the save at all ranks, and the older checkpoints stay") {
  TempDir dir;
  save(dir.path(), 1);
  std::vector<std::string> errors(ranks);
  run_ranks(ranks, [&](ProcessGroup& group) {
    checkpoint::CheckpointOptions options{.folder = dir.path()};
    if (group.rank() == 1)
      options.before = [](std::string_view act) {
        if (act == "write part_00001.safetensors") throw Error(Errc::io, "no space left");
      };
    const trainer::PartsFolder folder{checkpoint::Checkpoints(options), group.rank() == 0};
    try {
      trainer::save_parts(folder, group, checkpoint::step_name(2), Rows(2).content(), Rows::placements());
    } catch (const Error& e) {
      errors[static_cast<std::size_t>(group.rank())] = e.what();
    }
  });
  for (const auto& error : errors) CHECK(error == "rank 1 cannot save its part of a checkpoint: no space left");
  CHECK(names_in(dir.path()) == std::set<std::string>{"step_000001"});
}

TEST_CASE("a checkpoint whose part is missing or changed is skipped, naming the file") {
  const bool missing = GENERATE(true, false);
  TempDir dir;
  for (const std::int64_t step : {1, 2}) save(dir.path(), step);
  const auto part = dir / "step_000002/part_00001.safetensors";
  if (missing)
    std::filesystem::remove(part);
  else
    std::filesystem::resize_file(part, 100);
  CHECK(newest_step(dir.path()) == 1);
  CHECK_THROWS_WITH(checkpoint::verify_checkpoint(dir / "step_000002"), Catch::Contains(part.string()));
}
