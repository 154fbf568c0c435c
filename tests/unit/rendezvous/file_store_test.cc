#include "rendezvous/store/file_store.h"

#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "common/atomic_file.h"
#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace std::chrono_literals;

namespace {

Deadline soon() {
  return Deadline::in(20s);
}

void append_to(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::app | std::ios::binary) << bytes;
}

}  // namespace

TEST_CASE("a partial record is ignored by readers and truncated by the next writer") {
  testing::TempDir dir;
  const auto record = rendezvous::encode(rendezvous::SetRequest{"torn", "value"});
  for (std::size_t cut = 1; cut < record.size(); ++cut) {
    INFO(cut);
    const auto path = dir / std::to_string(cut);
    FileStore first(path);
    first.set("k", "1", soon());
    append_to(path, record.substr(0, cut));
    FileStore second(path);
    CHECK(first.get("k", soon()) == "1");
    CHECK(second.num_keys(soon()) == 1);
    second.set("k", "2", soon());
    CHECK(first.get("k", soon()) == "2");
    CHECK(FileStore(path).list_keys(soon()) == std::vector<std::string>{"k"});
  }
}

TEST_CASE("a damaged or shortened file is an error that names it") {
  testing::TempDir dir;
  FileStore store(dir / "s");
  store.set("k", "1", soon());
  append_to(dir / "s", "\x7f");
  CHECK_THROWS_WITH(store.get("k", soon()),
                    Catch::Contains("/s is damaged before byte") && Catch::Contains("opcode 127"));
  std::filesystem::resize_file(dir / "s", 0);
  FileStore other(dir / "t");
  other.set("k", "1", soon());
  std::filesystem::resize_file(dir / "t", 3);
  CHECK_THROWS_WITH(other.get("k", soon()), Catch::Contains("shrank from"));
}

TEST_CASE("a failed write leaves the store unchanged") {
  testing::TempDir dir;
  FileStore store(dir / "s");
  store.set("k", "1", soon());
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit tight{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &tight) == 0);
  CHECK_THROWS_WITH(store.set("k", std::string(10'000, 'x'), soon()), Catch::Contains("cannot append to"));
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(store.get("k", soon()) == "1");
  store.set("k", "3", soon());
  CHECK(FileStore(dir / "s").get("k", soon()) == "3");
}

TEST_CASE("a lock that another process holds ends in a timeout that names the file") {
  testing::TempDir dir;
  FileStore store(dir / "s");
  const UniqueFd holder(::open((dir / "s").c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(::flock(holder.get(), LOCK_EX) == 0);
  CHECK_THROWS_WITH(store.set("k", "v", Deadline::in(50ms)),
                    Catch::Contains("holds the lock") && Catch::Contains("/s"));
}

TEST_CASE("several processes increment a counter, also when one of them is killed") {
  testing::TempDir dir;
  constexpr int children = 3, rounds = 100;
  std::vector<pid_t> pids;
  for (int i = 0; i < children; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      FileStore store(dir / "s");
      for (int round = 0; round < rounds; ++round) store.add("n", 1, soon());
      for (int round = 0; i == 0; ++round) store.set("busy", std::to_string(round), soon());
      ::_exit(0);
    }
    pids.push_back(pid);
  }
  FileStore store(dir / "s");
  store.get("busy", soon());
  ::kill(pids[0], SIGKILL);
  for (const auto pid : pids) ::waitpid(pid, nullptr, 0);
  CHECK(store.add("n", 0, soon()) == children * rounds);
}
