#include "launcher/report/memory_evidence.h"

#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using Answer = MemoryEvidence::Finding::Answer;

namespace {

const char* const mounts =
    "25 30 0:23 / /sys rw,nosuid - sysfs sysfs rw\n"
    "31 25 0:27 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
    "33 25 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "35 25 0:31 / /sys/fs/cgroup/memory rw,relatime shared:11 master:2 - cgroup cgroup rw,memory\n";

// A cgroup whose files a test writes.
struct FakeCgroup {
  testing::TempDir folder;
  MemoryCgroup cgroup{.folder = folder.path(), .unified = true, .name = "/job"};

  void kills(int count) const {
    std::ofstream(cgroup.counter()) << "low 0\nhigh 0\nmax 7\noom 1\noom_kill " << count << "\noom_group_kill 0\n";
  }
  void limit(const std::string& text) const { std::ofstream(cgroup.limit()) << text << "\n"; }
};

}  // namespace

TEST_CASE("the memory controller's folder, of version 1 beside 2, of 2 alone, and in a container") {
  const auto hybrid = memory_cgroup("4:memory:/job/a\n1:cpu:/x\n0::/y\n", mounts);
  REQUIRE(hybrid);
  CHECK(hybrid->counter() == "/sys/fs/cgroup/memory/job/a/memory.oom_control");
  CHECK(hybrid->limit() == "/sys/fs/cgroup/memory/job/a/memory.limit_in_bytes");
  CHECK(hybrid->name == "/job/a");
  const auto unified = memory_cgroup("0::/user.slice\n", "40 25 0:9 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  REQUIRE(unified);
  CHECK(unified->counter() == "/sys/fs/cgroup/user.slice/memory.events");
  const auto contained = memory_cgroup("0::/\n", "40 25 0:9 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  REQUIRE(contained);
  CHECK(contained->limit() == "/sys/fs/cgroup/memory.max");
  const auto partly = memory_cgroup("4:memory:/docker/ab/c\n",
                                    "35 25 0:31 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  REQUIRE(partly);
  CHECK(partly->folder == "/sys/fs/cgroup/memory/c");
}

TEST_CASE("the result is empty without a memory controller") {
  CHECK_FALSE(memory_cgroup("", mounts));
  CHECK_FALSE(memory_cgroup("0::/a\n", ""));
  CHECK_FALSE(memory_cgroup("1:cpu:/x\n", mounts));
  CHECK_FALSE(memory_cgroup("junk", "junk - \n1 2 3\n"));
}

TEST_CASE("the kernel's counter in either version's format") {
  CHECK(oom_kills("oom 3\noom_kill 2\noom_group_kill 9\n") == 2);
  CHECK(oom_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n") == 1);
  CHECK_FALSE(oom_kills("oom_kill_disable 0\n"));
  CHECK_FALSE(oom_kills("oom_kill many\n"));
  CHECK_FALSE(oom_kills(""));
}

TEST_CASE("the kernel's record of a kill") {
  const auto kill = parse_kernel_kill(
      "3,417,1428743722,-;Memory cgroup out of memory: Killed process 18662 (python3) total-vm:221368kB, "
      "anon-rss:65152kB, file-rss:6656kB, shmem-rss:4kB, UID:0 pgtables:184kB oom_score_adj:0");
  REQUIRE(kill);
  CHECK(kill->pid == 18662);
  CHECK(kill->resident_kib == 71812);
  CHECK(kill->by_cgroup_limit);
  CHECK_FALSE(parse_kernel_kill("3,4,5,-;Out of memory: Killed process 7 (a)")->by_cgroup_limit);
  CHECK_FALSE(parse_kernel_kill("6,414,1428743614,-;[  18661]     0 18661     1155"));
  CHECK_FALSE(parse_kernel_kill("Killed process x"));
}

TEST_CASE("a kill is attributed to memory only if the counter has risen since begin()") {
  const FakeCgroup fake;
  fake.kills(4);
  fake.limit("67108864");
  MemoryEvidence evidence({.cgroup = fake.cgroup});
  evidence.begin();
  CHECK(evidence.about(7, 1).answer == Answer::no);
  fake.kills(5);
  const auto finding = evidence.about(7, 63 * 1024);
  CHECK(finding.answer == Answer::yes);
  CHECK(finding.text ==
        "out of memory: killed by the kernel with at most 63 MiB resident (cgroup /job has a limit of 64 MiB)");
  evidence.begin();
  CHECK(evidence.about(7, 1).answer == Answer::no);
}

TEST_CASE("a cgroup without a limit is named without one") {
  const FakeCgroup fake;
  fake.kills(0);
  fake.limit("max");
  MemoryEvidence evidence({.cgroup = fake.cgroup});
  evidence.begin();
  fake.kills(1);
  CHECK_THAT(evidence.about(7, 20 * 1024 * 1024).text, Catch::EndsWith("with at most 20 GiB resident (cgroup /job)"));
}

TEST_CASE("records of the kernel's log count from begin() on") {
  const testing::TempDir folder;
  const auto log = folder / "kmsg";
  std::ofstream(log) << "3,1,1,-;Out of memory: Killed process 7 (old) anon-rss:1kB\n";
  MemoryEvidence evidence({.kernel_log = log});
  evidence.begin();
  CHECK(evidence.about(7, 1).answer == Answer::unknown);
  std::ofstream(log, std::ios::app) << "3,2,2,-;Out of memory: Killed process 7 (new) anon-rss:20480kB\n";
  const auto finding = evidence.about(7, 1);
  CHECK(finding.answer == Answer::yes);
  CHECK(finding.text == "out of memory: the kernel killed it at 20 MiB; the whole machine was out of memory");
}

TEST_CASE("without a source the answer is unknown") {
  MemoryEvidence evidence({});
  evidence.begin();
  CHECK(evidence.about(7, 1).answer == Answer::unknown);
}

TEST_CASE("the kill of a process that is not judged is no evidence about the others") {
  const FakeCgroup fake;
  fake.kills(3);
  MemoryEvidence evidence({.cgroup = fake.cgroup, .kernel_log = {}});
  evidence.begin();
  evidence.leave_out_kill();  // by another process, not the kernel
  fake.kills(4);
  CHECK(evidence.about(1, 100).answer == Answer::yes);
  evidence.leave_out_kill();
  CHECK(evidence.about(1, 100).answer == Answer::no);
  fake.kills(5);
  CHECK(evidence.about(1, 100).answer == Answer::yes);
}

TEST_CASE("a cgroup whose processes the kernel kills together, by its own setting or that of a parent") {
  FakeCgroup fake;
  const auto parent = fake.cgroup.folder;
  fake.cgroup.folder /= "child";
  std::filesystem::create_directory(fake.cgroup.folder);
  const auto kills_all = [&] { return MemoryEvidence({.cgroup = fake.cgroup, .kernel_log = {}}).kills_whole_cgroup(); };
  CHECK_FALSE(kills_all());
  std::ofstream(fake.cgroup.folder / "memory.oom.group") << "0\n";
  CHECK_FALSE(kills_all());
  std::ofstream(parent / "memory.oom.group") << "1\n";
  CHECK(kills_all());
  CHECK_FALSE(MemoryEvidence({.cgroup = std::nullopt, .kernel_log = {}}).kills_whole_cgroup());
}
