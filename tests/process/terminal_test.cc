#include <fstream>

#include "common/atomic_file.h"
#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/support/terminal_child.h"

using namespace ddprun::testing;

namespace {

// Returns verbs for only one rank.
Words rank(int number, Words verbs) {
  verbs.insert(verbs.begin(), "if-rank=" + std::to_string(number));
  verbs.emplace_back("end-if");
  return verbs;
}

Words both(Words first, const Words& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace

TEST_CASE("workers have a terminal where ddprun has one, narrower by the prefix") {
  TerminalChild child(command(two_workers(), rank(1, {"terminal", "descriptors"})));
  CHECK(child.wait() == 0);
  CHECK(child.rows() ==
        Words{"[default1]:stdout 69x24, stderr 69x24, no controlling terminal", "[default1]:descriptors 0 1 2"});
}

TEST_CASE("workers have no terminal where ddprun has none, or for a redirected stream") {
  const auto piped = run_child(command(two_workers(), rank(1, {"terminal"})));
  CHECK(piped.out == "[default1]:stdout none, stderr none, no controlling terminal\n");
  const TempDir folder;
  TerminalChild redirected(
      command(two_workers({"--log_dir=" + folder.path().string(), "-r", "2"}), rank(1, {"terminal"})));
  CHECK(redirected.wait() == 0);
  CHECK(redirected.text().find("stdout 69x24, stderr none") != std::string::npos);
  TerminalChild dumb(command(two_workers(), rank(1, {"terminal"})), {{"TERM", "dumb"}});
  CHECK(dumb.wait() == 0);
  CHECK(dumb.text().find("stdout none, stderr none") != std::string::npos);
}

TEST_CASE("a single worker has the terminal itself as standard output, and a pseudo-terminal as standard error") {
  TerminalChild child(command({}, {"terminal", "err=\\rraw"}));
  CHECK(child.wait() == 0);
  CHECK(child.text().find("stdout 80x24, stderr 80x24") != std::string::npos);
  CHECK(child.text().find("\rraw") != std::string::npos);
}

TEST_CASE("a bar is redrawn in place, and another worker's line is inserted whole above it") {
  const TempDir folder;
  const auto file = [&](const char* name) { return (folder / name).string(); };
  TerminalChild child(command(two_workers(), both(rank(0, {"out=\\r10% of it", "wait-file=" + file("go"), "out=\\r20%",
                                                           "wait-file=" + file("end"), "out=\\r30%\\n"}),
                                                  rank(1, {"wait-file=" + file("line"), "out=whole\\n"}))));
  child.wait_until([&] { return child.rows() == Words{"[default0]:10% of it"}; }, "bar");
  std::ofstream(folder / "line").put('\n');
  child.wait_until([&] { return child.rows() == Words{"[default1]:whole", "[default0]:10% of it"}; }, "line above");
  std::ofstream(folder / "go").put('\n');
  child.wait_until([&] { return child.rows() == Words{"[default1]:whole", "[default0]:20%"}; }, "bar that moved on");
  std::ofstream(folder / "end").put('\n');
  CHECK(child.wait() == 0);
  CHECK(child.rows() == Words{"[default1]:whole", "[default0]:30%"});
}

TEST_CASE("a new size of the terminal is passed to the workers") {
  TerminalChild child(command(two_workers(), rank(0, {"answer=28", "out=ready\\n", "pause"})));  // SIGWINCH
  child.wait_for("ready");
  child.resize(100, 30);
  CHECK(child.wait() == 0);
  CHECK(child.rows() == Words{"[default0]:ready", "[default0]:got 28"});
}

TEST_CASE("the exit code, the summary and the log files are the same as without a terminal") {
  const TempDir folder;
  TerminalChild child(command(two_workers({"--log_dir=" + folder.path().string(), "--tee=3", "--rdzv-id=job"}),
                              rank(1, {"err=\\r10%\\r20%\\nwhy\\n", "exit=5"})));
  CHECK(child.wait() == 5);
  CHECK(child.text().find("The end of rank 1's standard error:\r\n  20%\r\n  why\r\n") != std::string::npos);
  const auto run = std::filesystem::directory_iterator(folder.path())->path();
  CHECK(ddprun::read_whole_file(run / "attempt_0" / "1" / "stderr.log") == "\r10%\r20%\nwhy\n");
}

TEST_CASE("the job ends when its terminal is closed") {
  const Marker marker;
  TerminalChild child(command(two_workers(), {"out=\\rbar", "err=ready\\n", "flood"}), marker.variables());
  child.wait_for("ready");
  child.hang_up();
  CHECK(child.wait() == 128 + SIGHUP);
  CHECK(marker.processes() == 0);
}
