#include "worker/checkpoint/checkpoint.h"

#include <chrono>
#include <fcntl.h>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/atomic_file.h"
#include "common/error.h"
#include "common/pipe.h"
#include "common/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::checkpoint;
using ddprun::testing::TempDir;

namespace {

// A checkpoint in which every tensor element is its step.
class Run {
 public:
  explicit Run(std::int64_t step, std::size_t elements = 1000) : values_(elements, static_cast<float>(step)) {
    state_.step = step;
    state_.config = {{"model.name", "test"}};
  }
  Content content() const {
    const auto bytes = std::as_bytes(std::span(values_));
    const std::vector<std::int64_t> shape{static_cast<std::int64_t>(values_.size())};
    return {{{"weight", DType::float32, shape, bytes}}, {{"weight.exp_avg", DType::float32, shape, bytes}}, state_};
  }

 private:
  std::vector<float> values_;
  RunState state_;
};

std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

// Returns the newest step, whose checkpoint must be whole, with the tensors of that step.
std::int64_t newest_step(const std::filesystem::path& folder) {
  const auto found = Checkpoints({.folder = folder}).newest();
  if (!found) return -1;
  for (const auto* name : {model_file, optimizer_file}) {
    const SafetensorsFile file(found->folder / name);
    REQUIRE(file.tensors().size() == 1);
    std::vector<float> values(file.tensors()[0].bytes() / sizeof(float));
    file.read(file.tensors()[0], std::as_writable_bytes(std::span(values)));
    for (const auto v : values) REQUIRE(v == static_cast<float>(found->state.step));
  }
  return found->state.step;
}

// Runs action in a forked child and returns its wait status.
int in_child(const std::function<void()>& action) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      action();
    } catch (const Error&) {
      ::_exit(10);
    } catch (...) {
      ::_exit(11);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

void save(const std::filesystem::path& folder, std::int64_t step, int keep = 2) {
  Checkpoints({.folder = folder, .keep = keep}).save(Run(step).content());
}

}  // namespace

TEST_CASE("the newest is found, and only as many as asked for are kept") {
  TempDir dir;
  const auto folder = dir / "a/b";  // made as needed
  CHECK(newest_step(folder) == -1);
  for (const std::int64_t step : {9, 10, 11, 1000000}) save(folder, step);
  CHECK(newest_step(folder) == 1000000);
  CHECK(names_in(folder) == std::set<std::string>{"step_000011", "step_1000000"});
  save(folder, 1000001, 1);
  CHECK(names_in(folder) == std::set<std::string>{"step_1000001"});
}

TEST_CASE("the best one is replaced at once, never removed with the others, and never the newest") {
  TempDir dir;
  CHECK_FALSE(Checkpoints({.folder = dir.path()}).best());
  for (const std::int64_t step : {3, 5}) Checkpoints({.folder = dir.path(), .keep = 1}).save_best(Run(step).content());
  CHECK(newest_step(dir.path()) == -1);
  for (const std::int64_t step : {4, 6, 7}) save(dir.path(), step, 1);
  CHECK(names_in(dir.path()) == std::set<std::string>{"best", "step_000007"});
  CHECK(newest_step(dir.path()) == 7);
  CHECK(Checkpoints({.folder = dir.path()}).best()->state.step == 5);
  // Whenever the process ends, there is a whole checkpoint: the old or the new one.
  std::set<std::int64_t> found;
  for (int end_at = 1; end_at <= 8; ++end_at) {
    const int status = in_child([&] {
      int acts = 0;
      Checkpoints({.folder = dir.path(),
                   .before =
                       [&](std::string_view) {
                         if (++acts == end_at) ::_exit(0);
                       }})
          .save_best(Run(9).content());
    });
    CHECK(status == 0);
    const auto best = Checkpoints({.folder = dir.path()}).best();
    REQUIRE(best);
    found.insert(best->state.step);
  }
  CHECK(found == std::set<std::int64_t>{5, 9});
  write_file_atomically(dir / "best/manifest.json", "{}");
  CHECK_THROWS_AS(Checkpoints({.folder = dir.path()}).best(), Error);
}

TEST_CASE("foreign files in the folder are left alone") {
  TempDir dir;
  write_file_atomically(dir / "notes.txt", "x");
  std::filesystem::create_directory(dir / "step_best");
  for (const std::int64_t step : {1, 2, 3}) save(dir.path(), step, 1);
  CHECK(names_in(dir.path()) == std::set<std::string>{"notes.txt", "step_best", "step_000003"});
}

TEST_CASE("a torn or changed checkpoint is skipped for the one before it") {
  struct Damage {
    const char* name;
    std::function<void(const std::filesystem::path&)> apply;
  };
  const auto overwrite = [](const std::filesystem::path& path, std::size_t at, char value) {
    auto bytes = read_whole_file(path);
    bytes[at] = value;
    write_file_atomically(path, bytes);
  };
  const std::vector<Damage> damages = {
      {"no manifest", [](const auto& f) { std::filesystem::remove(f / "manifest.json"); }},
      {"half a manifest", [](const auto& f) { std::filesystem::resize_file(f / "manifest.json", 50); }},
      {"no model", [](const auto& f) { std::filesystem::remove(f / "model.safetensors"); }},
      {"short model", [](const auto& f) { std::filesystem::resize_file(f / "model.safetensors", 500); }},
      {"a changed weight", [&](const auto& f) { overwrite(f / "model.safetensors", 600, 'x'); }},
      {"a changed moment", [&](const auto& f) { overwrite(f / "optimizer.safetensors", 600, 'x'); }},
      {"a changed state", [&](const auto& f) { overwrite(f / "state.json", 12, '9'); }},
      {"an empty folder", [](const auto& f) {
         std::filesystem::remove_all(f);
         std::filesystem::create_directory(f);
       }}};
  for (const auto& damage : damages) {
    INFO(damage.name);
    TempDir dir;
    save(dir.path(), 1);
    save(dir.path(), 2);
    damage.apply(dir / "step_000002");
    CHECK(newest_step(dir.path()) == 1);
    save(dir.path(), 2);  // the run reaches step 2 again
    CHECK(newest_step(dir.path()) == 2);
    CHECK(names_in(dir.path()) == std::set<std::string>{"step_000001", "step_000002"});
  }
}

TEST_CASE("a checkpoint of another step than its folder or manifest is skipped for the one before it") {
  TempDir dir;
  for (const std::int64_t step : {1, 2}) save(dir.path(), step);
  const auto renamed = dir / "step_000040";
  std::filesystem::rename(dir / "step_000002", renamed);
  CHECK_THROWS_WITH(verify_checkpoint(renamed),
                    (renamed / "state.json").string() + ": member step is 2, expected 40, that of the folder's name");
  CHECK(newest_step(dir.path()) == 1);
  auto manifest = read_whole_file(renamed / "manifest.json");
  const std::string step = "\"step\":2";
  write_file_atomically(renamed / "manifest.json", manifest.replace(manifest.find(step), step.size(), "\"step\":40"));
  CHECK_THROWS_WITH(verify_checkpoint(renamed),
                    (renamed / "state.json").string() + ": member step is 2, expected 40, that of manifest.json");
}

TEST_CASE("checkpoints of which none can be used are an error that says why, and stay as they are") {
  TempDir dir;
  for (const std::int64_t step : {1, 2}) {
    save(dir.path(), step);
    std::filesystem::resize_file(dir / ("step_00000" + std::to_string(step)) / "manifest.json", 50);
  }
  const auto manifest = (dir / "step_000002/manifest.json").string();
  CHECK_THROWS_WITH(Checkpoints({.folder = dir.path()}).newest(),
                    Catch::StartsWith("no checkpoint in " + dir.path().string() + " can be used (2 found); " +
                                      "the newest one: " + manifest + ": ") &&
                        Catch::Contains("checkpoint.resume = never"));
  CHECK(names_in(dir.path()) == std::set<std::string>{"step_000001", "step_000002"});
}

namespace {

// Returns every file below a folder, with its content.
std::map<std::string, std::string> contents_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) all[entry.path()] = read_whole_file(entry.path());
  return all;
}

// Root gives the folder to another user and becomes that user, since chmod does not stop root.
void become_ordinary_user(const std::filesystem::path& folder) {
  constexpr uid_t nobody = 65534;
  if (::geteuid() != 0) return;
  REQUIRE(::chown(folder.c_str(), nobody, nobody) == 0);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    REQUIRE(::chown(entry.path().c_str(), nobody, nobody) == 0);
  REQUIRE(::setgid(nobody) == 0);
  REQUIRE(::setuid(nobody) == 0);
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.code() == Errc::io ? e.what() : "not Errc::io";
  }
  return "no error";
}

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

}  // namespace

TEST_CASE("a checkpoint that its owner may not read is neither replaced nor renamed nor pruned") {
  TempDir dir;
  save(dir.path(), 1);
  save(dir.path(), 2);
  const auto before = contents_of(dir / "step_000001");
  const auto none = std::filesystem::perms::none;
  const int status = in_child([&] {
    become_ordinary_user(dir.path());
    std::filesystem::permissions(dir / "step_000001", none);
    {
      Checkpoints checkpoints({.folder = dir.path(), .keep = 1});
      require(checkpoints.newest()->state.step == 2, "the readable one is found");
      checkpoints.save(Run(3).content());  // prunes step 2, not step 1
    }
    require(names_in(dir.path()) == std::set<std::string>{"step_000001", "step_000003"}, "after a save");
    std::filesystem::permissions(dir / "step_000003", none);
    Checkpoints checkpoints({.folder = dir.path(), .keep = 1});
    const auto manifest = (dir / "step_000003/manifest.json").string();
    require(error_of([&] { checkpoints.newest(); }).find("cannot open " + manifest + ": Permission denied") !=
                std::string::npos,
            "none can be read");
    // This holds also in a process that never looked for the newest one.
    Checkpoints unaware({.folder = dir.path(), .keep = 1});
    require(
        error_of([&] { unaware.save(Run(3).content()); }).starts_with("cannot save " + (dir / "step_000003").string()),
        "the same step again");
    unaware.save(Run(4).content());
    require(names_in(dir.path()) == std::set<std::string>{"step_000001", "step_000003", "step_000004"}, "at the end");
    for (const auto* name : {"step_000001", "step_000003"})
      std::filesystem::permissions(dir / name, std::filesystem::perms::owner_all);
  });
  REQUIRE((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  CHECK(contents_of(dir / "step_000001") == before);
}

TEST_CASE("a checkpoint on a disk that fails is neither replaced nor renamed nor pruned") {
  // The first page of a process's memory exists as a file offset, and reading it fails with EIO.
  const auto fail_to_read = [](const std::filesystem::path& file) {
    std::filesystem::remove(file);
    std::filesystem::create_symlink("/proc/self/mem", file);
  };
  TempDir dir;
  save(dir.path(), 1);
  save(dir.path(), 2);
  fail_to_read(dir / "step_000001/optimizer.safetensors");
  fail_to_read(dir / "step_000002/manifest.json");
  Checkpoints checkpoints({.folder = dir.path(), .keep = 1});
  CHECK(error_of([&] {
          checkpoints.newest();
        }).find("cannot read " + (dir / "step_000002/manifest.json").string() + ": Input/output error") !=
        std::string::npos);
  CHECK(error_of([&] { checkpoints.save(Run(2).content()); }).starts_with("cannot save "));
  checkpoints.save(Run(3).content());
  checkpoints.save(Run(4).content());
  CHECK(names_in(dir.path()) == std::set<std::string>{"step_000001", "step_000002", "step_000004"});
}

TEST_CASE("a folder that cannot be listed is an error, not an empty one") {
  TempDir dir;
  save(dir.path(), 1);
  const int status = in_child([&] {
    become_ordinary_user(dir.path());
    std::filesystem::permissions(dir.path(), std::filesystem::perms::none);
    std::string error;
    try {
      Checkpoints({.folder = dir.path()}).newest();
    } catch (const InaccessibleFile& e) {
      error = e.what();
    }
    std::filesystem::permissions(dir.path(), std::filesystem::perms::owner_all);
    require(error == "cannot list " + dir.path().string() + ": Permission denied", error);
  });
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

TEST_CASE("a large file has what was written") {
  TempDir dir;
  const std::string piece(std::size_t{1} << 20, 'x');
  FileWriter out(dir / "file");
  for (int i = 0; i < 70; ++i) out.write(piece);
  const auto written = out.finish();
  const auto read = digest_of_file(dir / "file");
  CHECK(written.bytes == 70 * piece.size());
  CHECK(read.bytes == written.bytes);
  CHECK(read.sha256 == written.sha256);
}

TEST_CASE("a process killed at any act of a save leaves the newest checkpoint readable") {
  int acts = 0;
  {
    TempDir dir;
    for (const std::int64_t step : {1, 2}) save(dir.path(), step);
    Checkpoints({.folder = dir.path(), .before = [&](std::string_view) { ++acts; }}).save(Run(3).content());
  }
  REQUIRE(acts >= 9);  // folder, four files, flush, publish, flush, prune
  int published = 0;
  for (int kill_at = 1; kill_at <= acts; ++kill_at) {
    TempDir dir;
    for (const std::int64_t step : {1, 2}) save(dir.path(), step);
    const int status = in_child([&] {
      int act = 0;
      Checkpoints({.folder = dir.path(),
                   .before =
                       [&](std::string_view) {
                         if (++act == kill_at) ::raise(SIGKILL);
                       }})
          .save(Run(3).content());
    });
    INFO("killed at act " << kill_at);
    REQUIRE((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    const auto newest = newest_step(dir.path());
    CHECK((newest == 2 || newest == 3));
    published += newest == 3;
    save(dir.path(), 4);  // and the next save clears up
    CHECK(newest_step(dir.path()) == 4);
    for (const auto& name : names_in(dir.path())) CHECK(name.starts_with("step_"));
  }
  CHECK(published >= 1);
  CHECK(published < acts);
}

TEST_CASE("a process killed while it replaces a torn checkpoint leaves one readable") {
  for (int kill_at = 1; kill_at <= 8; ++kill_at) {
    TempDir dir;
    for (const std::int64_t step : {1, 2}) save(dir.path(), step);
    std::filesystem::resize_file(dir / "step_000002" / "model.safetensors", 10);
    in_child([&] {
      int act = 0;
      Checkpoints({.folder = dir.path(),
                   .before =
                       [&](std::string_view) {
                         if (++act == kill_at) ::raise(SIGKILL);
                       }})
          .save(Run(2).content());
    });
    const auto newest = newest_step(dir.path());
    CHECK((newest == 1 || newest == 2));
  }
}

TEST_CASE("a save waits until another process has ended its own in the folder, or is gone") {
  const bool is_killed = GENERATE(false, true);
  CAPTURE(is_killed);
  TempDir dir;
  save(dir.path(), 1);
  const Pipe stopped = make_pipe(), released = make_pipe();
  const pid_t other = ::fork();
  REQUIRE(other >= 0);
  if (other == 0) {
    char byte = 0;
    Checkpoints({.folder = dir.path(),
                 .before =
                     [&](std::string_view act) {
                       if (act != "write the manifest") return;
                       if (::write(stopped.writer.get(), &byte, 1) != 1) ::_exit(1);
                       if (::read(released.reader.get(), &byte, 1) != 1) ::_exit(2);
                     }})
        .save(Run(2).content());
    ::_exit(0);
  }
  char byte = 0;
  REQUIRE(::read(stopped.reader.get(), &byte, 1) == 1);
  std::promise<void> begun;
  auto own = std::async(std::launch::async, [&] {
    Checkpoints({.folder = dir.path(),
                 .before =
                     [&](std::string_view act) {
                       if (act == "create the folder") begun.set_value();
                     }})
        .save(Run(3).content());
  });
  auto begins = begun.get_future();
  CHECK(begins.wait_for(std::chrono::milliseconds(200)) == std::future_status::timeout);  // one that does not wait
  if (is_killed) ::kill(other, SIGKILL);
  CHECK(::write(released.writer.get(), &byte, 1) == 1);
  int status = 0;
  REQUIRE(::waitpid(other, &status, 0) == other);
  CHECK((is_killed ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0));
  own.get();
  const auto expected = is_killed ? std::set<std::string>{"step_000001", "step_000003"}
                                  : std::set<std::string>{"step_000002", "step_000003"};
  CHECK(names_in(dir.path()) == expected);
  CHECK(newest_step(dir.path()) == 3);
}

TEST_CASE("a lock that is not released in time ends a save, naming its file") {
  TempDir dir;
  const auto locked = Checkpoints({.folder = dir.path()}).lock();
  Checkpoints checkpoints({.folder = dir.path(), .timeout = std::chrono::seconds(1)});
  CHECK_THROWS_WITH(checkpoints.save(Run(1).content()),
                    "cannot lock " + (dir / ".lock").string() +
                        ", as another process saves there: the disk has not answered for 1s (checkpoint.timeout)");
}

TEST_CASE("a full disk is an error naming the file, and the older checkpoints stay") {
  TempDir dir;
  for (const std::int64_t step : {1, 2}) save(dir.path(), step);
  const int status = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{20000, 20000};  // bytes of a file: write() fails as on a full disk
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      Checkpoints({.folder = dir.path()}).save(Run(3, 10000).content());
    } catch (const Error& e) {
      const std::string text = e.what();
      const auto expected = "cannot write " + (dir / ".writing-step_000003/model.safetensors").string();
      ::_exit(e.code() == Errc::io && text.starts_with(expected) ? 42 : 43);
    }
  });
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 42));
  CHECK(newest_step(dir.path()) == 2);
  CHECK(names_in(dir.path()) == std::set<std::string>{"step_000001", "step_000002"});
}

TEST_CASE("a failure at any act before the commit leaves everything as it was") {
  for (int fail_at = 1; fail_at <= 7; ++fail_at) {
    TempDir dir;
    for (const std::int64_t step : {1, 2}) save(dir.path(), step);
    int act = 0;
    Checkpoints failing({.folder = dir.path(), .before = [&](std::string_view what) {
                           if (++act == fail_at) throw make_error(Errc::io, "no space left: {}", what);
                         }});
    CHECK_THROWS_AS(failing.save(Run(3).content()), Error);
    CHECK(newest_step(dir.path()) == 2);
    CHECK(names_in(dir.path()) == std::set<std::string>{"step_000001", "step_000002"});
  }
}

TEST_CASE("a folder that cannot be made is an error naming it, before anything is to be saved") {
  TempDir dir;
  write_file_atomically(dir / "file", "x");
  CHECK_THROWS_WITH(Checkpoints({.folder = dir / "file/sub"}),
                    Catch::Contains("cannot create folder " + (dir / "file/sub").string()));
}

TEST_CASE("an act that a disk does not answer is an error naming the file, and changes nothing later") {
  const auto act = GENERATE(0, 1);  // begin() and remove_older()
  TempDir dir;
  for (const std::int64_t step : {1, 2}) save(dir.path(), step);
  // A pipe to which nobody writes: it cannot be opened for reading.
  const auto pipe = dir / "step_000001/manifest.json";
  std::filesystem::remove(pipe);
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const auto error = "cannot read " + pipe.string() + ": the disk has not answered for 2s (checkpoint.timeout)";
  std::promise<void> ended;
  {
    const std::shared_ptr<void> in_use(nullptr, [&](void*) { ended.set_value(); });
    Checkpoints checkpoints(
        {.folder = dir.path(), .keep = 1, .before = [in_use](std::string_view) {}, .timeout = std::chrono::seconds(2)});
    if (act == 0) CHECK_THROWS_WITH(checkpoints.begin("step_000001"), error);
    if (act == 1) CHECK_THROWS_WITH(checkpoints.remove_older("step_000002"), error);
    CHECK_THROWS_WITH(checkpoints.begin("best"), error);
  }
  REQUIRE(UniqueFd(::open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC)));  // the disk answers
  REQUIRE(ended.get_future().wait_for(std::chrono::minutes(1)) == std::future_status::ready);
  CHECK(names_in(dir.path()) == std::set<std::string>{"step_000001", "step_000002"});
}
