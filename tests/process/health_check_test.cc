#include <algorithm>
#include <csignal>

#include "common/host_port.h"
#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

// --health_check: a command that decides whether a node joins.
using namespace ddprun;
using namespace ddprun::testing;

namespace {

Words with_check(const std::string& check, Words options = {}) {
  options.push_back("--health_check=" + check);
  return command(two_workers(std::move(options)), {"out=ran\\n"});
}

std::string refusal(const std::string& check, const std::string& rest) {
  return "[ddprun] error: host " + local_host_name() + " does not join the job: its health check '" + check + "' " +
         rest + "\n";
}

}  // namespace

TEST_CASE("a node whose health check succeeds runs its workers, and nothing is printed") {
  const auto result = run_child(with_check("echo all is well; test -d /"));
  CHECK(result.code == 0);
  auto lines = lines_of(result.out);
  std::sort(lines.begin(), lines.end());
  CHECK(lines == Words{"[default0]:ran", "[default1]:ran"});
  CHECK(result.err.empty());
}

TEST_CASE("a health check does not read the input that is for the workers") {
  Words line{"/bin/sh", "-c", "echo text | \"$@\"", "sh"};
  for (const auto& word : command({"--standalone", "--health_check=cat"}, {"cat"})) line.push_back(word);
  CHECK(run_child(line).out == "text\n");
}

TEST_CASE("a health check that fails keeps the node out, with its exit code and its output as the reason") {
  const auto result = run_child(with_check("echo the disk is full >&2; exit 3"));
  CHECK(result.code == 1);
  CHECK(result.out.empty());
  CHECK(result.err == refusal("echo the disk is full >&2; exit 3", "failed with exit code 3: the disk is full"));
}

TEST_CASE("several lines of a health check follow its reason, and none is said to be none") {
  CHECK(run_child(with_check("echo a; echo b; false")).err ==
        refusal("echo a; echo b; false", "failed with exit code 1:\n  a\n  b"));
  CHECK(run_child(with_check("kill -KILL $$")).err == refusal("kill -KILL $$", "was ended by SIGKILL, without output"));
}

TEST_CASE("a health check that does not end is stopped after the join timeout, its children too") {
  const Marker marker;
  const auto result =
      run_child(with_check("echo begun; sleep 1000 & wait", {"--rdzv_conf=join_timeout=4"}), marker.variables());
  CHECK(result.code == 1);
  CHECK(result.err == refusal("echo begun; sleep 1000 & wait", "has not ended within 4 s: begun"));
  CHECK(marker.processes() == 0);
}

TEST_CASE("a child that a health check leaves behind ends with it") {
  const Marker marker;
  CHECK(run_child(with_check("sleep 1000 &"), marker.variables()).code == 0);
  CHECK(marker.processes() == 0);
}

TEST_CASE("a signal that ends ddprun during the health check ends the check") {
  const TempDir folder;
  const auto begun = (folder / "begun").string();
  const Marker marker;
  Child child(with_check("touch " + begun + "; sleep 1000"), marker.variables());
  child.wait_until([&] { return std::filesystem::exists(begun); }, "the check");
  child.signal(SIGTERM);
  CHECK(child.wait().signal_number == SIGTERM);
  child.wait_until([&] { return marker.processes() == 0; }, "the end of the check");
}
