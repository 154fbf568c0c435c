#include "worker/trainer/state/part_save.h"

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "common/atomic_file.h"
#include "common/error.h"
#include "common/host_port.h"
#include "common/unique_fd.h"
#include "worker/checkpoint/file_writer.h"
#include "worker/comm/backends/local/self_group.h"
#include "worker/comm/collectives.h"
#include "worker/parallel/stored/placements_json.h"
#include "worker/trainer/state/run_checkpoint.h"
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
    checkpoint::Checkpoints checkpoints(options);
    const trainer::PartsFolder saved{&checkpoints, group.rank() == 0};
    trainer::save_parts(saved, group, checkpoint::step_name(step), Rows(step).content(), Rows::placements());
  });
}

std::string no_space() {
  return "rank 1 on host " + local_host_name() + " cannot save its part of a checkpoint: no space left";
}

std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

std::int64_t newest_step(const std::filesystem::path& folder) {
  return checkpoint::Checkpoints({.folder = folder}).newest()->state.step;
}

checkpoint::Peers peers_of(ProcessGroup& group) {
  return {.rank = group.rank(),
          .all_gather = [&group](const std::string& own) { return all_gather_bytes(group, own); }};
}

// Hosts without a common file system, each with a rank and a folder of checkpoints.
class PrivateFolders {
 public:
  explicit PrivateFolders(int keep = 2) {
    for (int host = 0; host < ranks; ++host) {
      const auto before = [this, host](std::string_view act) {
        if (host == failing_host_ && act == failing_act_) throw Error(Errc::io, "no space left");
      };
      checkpoints_.emplace_back(checkpoint::CheckpointOptions{.folder = folder(host), .keep = keep, .before = before});
    }
  }

  std::filesystem::path folder(int host) const { return dirs_[static_cast<std::size_t>(host)].path(); }
  // From now on this act fails on this host.
  void fail(int host, const std::string& act) {
    failing_host_ = host;
    failing_act_ = act;
  }
  // Returns the errors of all ranks.
  std::set<std::string> save(std::int64_t step, const std::string& name) {
    std::mutex mutex;
    std::set<std::string> errors;
    run_ranks(ranks, [&](ProcessGroup& group) {
      try {
        const trainer::PartsFolder folder{&checkpoints_[static_cast<std::size_t>(group.rank())], true};
        trainer::save_parts(folder, group, name, Rows(step).content(), Rows::placements());
      } catch (const Error& e) {
        const std::lock_guard lock(mutex);
        errors.insert(e.what());
      }
    });
    return errors;
  }
  void save_steps(std::initializer_list<std::int64_t> steps) {
    for (const auto step : steps) REQUIRE(save(step, checkpoint::step_name(step)).empty());
  }
  // Returns what rank 0 finds.
  checkpoint::Found find(bool best = false) {
    std::optional<checkpoint::Found> found;
    run_ranks(ranks, [&](ProcessGroup& group) {
      auto& checkpoints = checkpoints_[static_cast<std::size_t>(group.rank())];
      const auto own = best ? checkpoints.best(peers_of(group)) : checkpoints.newest(peers_of(group));
      if (group.rank() == 0) found = own;
    });
    REQUIRE(found);
    return *found;
  }

 private:
  const std::array<TempDir, ranks> dirs_;
  int failing_host_ = -1;
  std::string failing_act_;
  std::vector<checkpoint::Checkpoints> checkpoints_;  // by host
};

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

TEST_CASE("no other process saves in the folder while ranks save their parts") {
  TempDir dir;
  std::atomic<int> acts = 0, unlocked = 0;
  save(dir.path(), 1, [&](int) {
    return [&](std::string_view) {
      const UniqueFd file(::open((dir / ".lock").c_str(), O_RDONLY | O_CLOEXEC));
      ++acts;
      if (!file || ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) ++unlocked;
    };
  });
  CHECK(acts > 0);
  CHECK(unlocked == 0);
  CHECK(names_in(dir.path()) == std::set<std::string>{"step_000001"});
}

TEST_CASE("ranks killed at any act of a save of parts leave the newest complete checkpoint") {
  const int acts = acts_of_save();
  REQUIRE(acts >= 12);  // folder, three parts, placements, state, manifest, flush, publish, flush, remove, prune
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
    checkpoint::Checkpoints checkpoints(options);
    const trainer::PartsFolder folder{&checkpoints, group.rank() == 0};
    try {
      trainer::save_parts(folder, group, checkpoint::step_name(2), Rows(2).content(), Rows::placements());
    } catch (const Error& e) {
      errors[static_cast<std::size_t>(group.rank())] = e.what();
    }
  });
  for (const auto& error : errors) CHECK(error == no_space());
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

TEST_CASE("a host that cannot do an act of a save leaves the checkpoint of that name complete on all hosts") {
  PrivateFolders hosts;
  hosts.save_steps({1});
  REQUIRE(hosts.save(1, checkpoint::best_name).empty());
  for (const std::string act : {"create the folder", "write part_00001.safetensors", "write placements.json",
                                "write the manifest", "flush the folder", "publish", "flush the rename"}) {
    INFO(act);
    hosts.fail(1, act);
    CHECK(hosts.save(2, checkpoint::best_name) == std::set<std::string>{no_space()});
    CHECK(hosts.find(true).state.step == 1);
    for (int host = 0; host < ranks; ++host)
      CHECK(names_in(hosts.folder(host)) == std::set<std::string>{"best", "step_000001"});
  }
  hosts.fail(-1, "");
  REQUIRE(hosts.save(2, checkpoint::best_name).empty());
  CHECK(hosts.find(true).state.step == 2);
  for (int host = 0; host < ranks; ++host)
    CHECK(names_in(hosts.folder(host)) == std::set<std::string>{"best", "step_000001"});
}

TEST_CASE("a host that cannot publish a new checkpoint leaves none of it on any host") {
  PrivateFolders hosts;
  hosts.save_steps({1});
  hosts.fail(2, "publish");
  CHECK_FALSE(hosts.save(2, checkpoint::step_name(2)).empty());
  for (int host = 0; host < ranks; ++host) CHECK(names_in(hosts.folder(host)) == std::set<std::string>{"step_000001"});
}

TEST_CASE("a disk may take longer than the timeout of the group") {
  TempDir dir;
  const auto timeout = std::chrono::seconds(2);
  auto groups = testing::make_thread_groups(2, timeout);
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < groups.size(); ++rank)
    threads.emplace_back([&, rank] {
      checkpoint::Checkpoints checkpoints({.folder = dir.path(), .before = [&](std::string_view act) {
                                             if (act == "write part_00001.safetensors")
                                               std::this_thread::sleep_for(2 * timeout);  // the slow disk
                                           }});
      try {
        trainer::save_parts({&checkpoints, rank == 0}, *groups[rank], checkpoint::step_name(1), Rows(1).content(),
                            "no placements");
      } catch (const Error& e) {
        errors[rank] = e.what();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) CHECK(error.empty());
  CHECK(newest_step(dir.path()) == 1);
}

TEST_CASE("another checkpoint of the same name at a lower rank does not hide a complete one") {
  const bool is_torn = GENERATE(false, true);
  TempDir complete, other;
  save(complete.path(), 2);
  std::filesystem::create_directories(other / "step_000002");
  if (is_torn) {
    write_file_atomically(other / "step_000002/manifest.json", "{");
  } else {
    checkpoint::Checkpoints({.folder = other.path()}).save(Rows(2).content());
    std::filesystem::remove(other / "step_000002/model.safetensors");
  }
  std::vector<std::map<std::string, int>> readers(2);
  run_ranks(2, [&](ProcessGroup& group) {
    checkpoint::Checkpoints checkpoints({.folder = group.rank() == 0 ? other.path() : complete.path()});
    readers[static_cast<std::size_t>(group.rank())] = checkpoints.newest(peers_of(group))->readers;
  });
  CHECK(readers[0] == readers[1]);
  CHECK(readers[0].contains("part_00002.safetensors"));
  for (const auto& [file, reader] : readers[0]) CHECK(reader == 1);
}

TEST_CASE("a whole checkpoint is read by the first rank that sees all its files") {
  TempDir some, all;
  for (const auto* dir : {&some, &all}) checkpoint::Checkpoints({.folder = dir->path()}).save(Rows(2).content());
  std::filesystem::remove(some / "step_000002/optimizer.safetensors");
  const auto find = [&] {
    std::map<std::string, int> readers;
    run_ranks(2, [&](ProcessGroup& group) {
      const auto& dir = group.rank() == 0 ? some : all;
      const auto found = checkpoint::examine_checkpoint(dir / "step_000002", peers_of(group));
      if (group.rank() == 0) readers = found.readers;
    });
    return readers;
  };
  const auto readers = find();
  CHECK(readers.size() == 3);
  for (const auto& [file, reader] : readers) CHECK(reader == 1);
  std::filesystem::remove(all / "step_000002/model.safetensors");
  CHECK_THROWS_WITH(find(), Catch::Contains("no rank sees all files of "));
}

TEST_CASE("what one host cannot read is removed on none") {
  PrivateFolders hosts(1);
  hosts.save_steps({1});
  for (int host = 0; host < ranks; ++host)
    std::filesystem::copy(hosts.folder(host) / "step_000001", hosts.folder(host) / "kept");
  hosts.save_steps({2});
  for (int host = 0; host < ranks; ++host)
    std::filesystem::rename(hosts.folder(host) / "kept", hosts.folder(host) / "step_000001");
  // The first page of a process's memory exists as a file offset, and reading it fails with EIO.
  const auto part = hosts.folder(0) / "step_000002/part_00000.safetensors";
  std::filesystem::remove(part);
  std::filesystem::create_symlink("/proc/self/mem", part);
  CHECK(hosts.find().state.step == 1);
  hosts.save_steps({3});
  for (int host = 0; host < ranks; ++host)
    CHECK(names_in(hosts.folder(host)) == std::set<std::string>{"step_000002", "step_000003"});
}

TEST_CASE("a checkpoint that is not complete on all hosts does not count among the newest") {
  PrivateFolders hosts(2);
  hosts.save_steps({1, 2});
  std::filesystem::remove_all(hosts.folder(1) / "step_000002");
  CHECK(hosts.find().state.step == 1);
  hosts.save_steps({3});
  CHECK(names_in(hosts.folder(0)) == std::set<std::string>{"step_000001", "step_000002", "step_000003"});
  CHECK(names_in(hosts.folder(1)) == std::set<std::string>{"step_000001", "step_000003"});
  hosts.save_steps({4});
  for (int host = 0; host < ranks; ++host)
    CHECK(names_in(hosts.folder(host)) == std::set<std::string>{"step_000003", "step_000004"});
}

namespace {

// Changes the list of a checkpoint's files.
void change_manifest(const std::filesystem::path& checkpoint,
                     const std::function<void(checkpoint::FileDigests&)>& act) {
  const auto path = checkpoint / "manifest.json";
  auto manifest = checkpoint::manifest_from_json(checkpoint::read_file(path), path.string());
  act(manifest.files);
  write_file_atomically(path, to_json(manifest));
}

// Replaces a file, and its hash in the manifest.
void replace_file(const std::filesystem::path& checkpoint, const std::string& name, const std::string& content) {
  write_file_atomically(checkpoint / name, content);
  change_manifest(checkpoint, [&](auto& files) { files[name] = checkpoint::digest_of_file(checkpoint / name); });
}

// Returns the step from which the ranks resume, or their error.
std::string resumed(const std::filesystem::path& folder) {
  std::array<std::string, ranks> results;
  const std::map<std::string, std::string> settings;
  run_ranks(ranks, [&](ProcessGroup& group) {
    auto& result = results[static_cast<std::size_t>(group.rank())];
    checkpoint::Checkpoints checkpoints({.folder = folder});
    try {
      const auto own = Tensor::zeros({1, 4}, DType::float32);
      const auto mesh = std::make_shared<const MeshShape>(std::vector<MeshAxis>{{"tensor", ranks}}, ranks);
      const trainer::PartsTarget parts{.model = {.tensors = {{{"weight", {ranks, 4}, DType::float32},
                                                              {.mesh = mesh, .shards = {{.axis = "tensor"}}}}},
                                                 .own = {own}},
                                       .optimizer = {},
                                       .averages = {}};
      const auto state = trainer::resume({.checkpoints = &checkpoints, .settings = settings}, {}, group, {}, &parts);
      result = fmt::format("step {}", state->step);
    } catch (const Error& e) {
      result = e.what();
    }
  });
  for (const auto& each : results) CHECK(each == results[0]);
  return results[0];
}

}  // namespace

TEST_CASE("a manifest that lists fewer parts than the placements have ranks is refused, naming the placements") {
  TempDir dir;
  save(dir.path(), 1);
  change_manifest(dir / "step_000001", [](auto& files) { files.erase("part_00002.safetensors"); });
  CHECK_THAT(resumed(dir.path()), Catch::Contains((dir / "step_000001/placements.json").string() +
                                                  ": member ranks is 3, expected at most 2, the number of parts"));
}

TEST_CASE("files of a checkpoint that contradict one another are skipped for the checkpoint before") {
  TempDir dir;
  save(dir.path(), 1);
  save(dir.path(), 2);
  const auto newest = dir / "step_000002";
  CHECK(resumed(dir.path()) == "step 2");
  const auto placements = Rows::placements();
  SECTION("placements that are none") {
    replace_file(newest, "placements.json", GENERATE("", "[]", "{}", R"({"format":"ddprun placements","version":1})"));
  }
  SECTION("placements of a larger tensor") {
    auto other = placements;
    other.replace(other.find("\"shape\":[3,4]"), 13, "\"shape\":[3,9]");
    replace_file(newest, "placements.json", other);
  }
  SECTION("placements of a tensor that is there twice") {
    const auto begin = placements.find("{\"name\""), end = placements.find("}", placements.find("\"writers\""));
    auto other = placements;
    other.insert(begin, placements.substr(begin, end + 1 - begin) + ",");
    replace_file(newest, "placements.json", other);
  }
  SECTION("a part without the tensor") {
    const auto part = newest / "other";
    checkpoint::FileWriter out(part);
    checkpoint::write_safetensors(out, {});
    out.finish();
    const auto content = checkpoint::read_file(part);
    std::filesystem::remove(part);
    replace_file(newest, "part_00001.safetensors", content);
  }
  SECTION("a part that is no safetensors file") {
    replace_file(newest, "part_00001.safetensors", "content");
  }
  SECTION("another size in the manifest") {
    change_manifest(newest, [](auto& files) { files["part_00001.safetensors"].bytes += 1; });
  }
  CHECK(resumed(dir.path()) == "step 1");
}

TEST_CASE("a disk that does not answer a save ends it at all ranks, naming rank, host and file") {
  TempDir dir;
  save(dir.path(), 1);
  // A pipe that nobody reads: it cannot be opened for writing.
  const auto pipe = dir / ".writing-step_000002/part_00001.safetensors", kept = dir / "pipe";
  std::array<std::string, ranks> errors;
  std::string later;
  std::promise<void> ended;
  run_ranks(ranks, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    checkpoint::CheckpointOptions options{.folder = dir.path(), .timeout = std::chrono::seconds(2)};
    if (rank != 1) options.timeout = std::chrono::minutes(10);
    if (rank == 1) {
      const std::shared_ptr<void> in_use(nullptr, [&](void*) { ended.set_value(); });
      options.before = [&, in_use](std::string_view act) {
        if (act != "write part_00001.safetensors") return;
        if (::mkfifo(pipe.c_str(), 0600) != 0 || ::link(pipe.c_str(), kept.c_str()) != 0) std::abort();
      };
    }
    checkpoint::Checkpoints checkpoints(options);
    try {
      trainer::save_parts({&checkpoints, rank == 0}, group, checkpoint::step_name(2), Rows(2).content(),
                          Rows::placements());
    } catch (const Error& e) {
      errors[rank] = e.what();
    }
    if (rank != 1) return;
    try {
      checkpoints.begin("best");
    } catch (const Error& e) {
      later = e.what();
    }
  });
  const UniqueFd reader(::open(kept.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  // The thread that was left behind asks for nothing more.
  REQUIRE(ended.get_future().wait_for(std::chrono::minutes(1)) == std::future_status::ready);
  for (const auto& error : errors)
    CHECK(error == "rank 1 on host " + local_host_name() + " cannot save its part of a checkpoint: cannot create " +
                       pipe.string() + ": the disk has not answered for 2s (checkpoint.timeout)");
  CHECK(errors[1].ends_with(later));
  CHECK_FALSE(later.empty());
  CHECK(newest_step(dir.path()) == 1);
}

TEST_CASE("placements of a whole state are refused in a checkpoint of parts") {
  TempDir dir;
  write_file_atomically(dir / "placements.json", to_json(stored::StoredState(1, true)));
  CHECK_THROWS_WITH(
      stored::stored_state_of(
          {.folder = dir.path(), .state = {}, .has_parts = true, .files = {{checkpoint::part_file(0), {}}}}),
      Catch::Contains("placements.json: member whole is true"));
}
