#include <algorithm>
#include <fstream>

#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

// --stdin: the workers that read ddprun's standard input.
using namespace ddprun::testing;

namespace {

// Returns the output of two workers that copy their input, which comes from the shell command.
Words copies(const std::string& shell_input, const Words& options) {
  Words line{"/bin/sh", "-c", shell_input, "sh"};
  for (const auto& word : command(two_workers(options), {"cat"})) line.push_back(word);
  auto lines = lines_of(run_child(line).out);
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace

TEST_CASE("with --stdin=0 rank 0 alone reads the standard input") {
  CHECK(copies("echo text | \"$@\"", {"--stdin=0"}) == Words{"[default0]:text"});
}

TEST_CASE("with --stdin=none no worker reads the standard input") {
  CHECK(copies("echo text | \"$@\"", {"--stdin=none"}).empty());
}

TEST_CASE("without --stdin one worker or the other gets what a pipe has") {
  const auto lines = copies("echo text | \"$@\"", {});
  REQUIRE(lines.size() == 1);
  CHECK(lines.front().ends_with("]:text"));
}

TEST_CASE("each worker reads all of a file, from where the caller has read it") {
  const TempDir folder;
  const auto file = (folder / "input").string();
  std::ofstream(file) << "first\nsecond\n";
  CHECK(copies("\"$@\" < " + file, {}) ==
        Words{"[default0]:first", "[default0]:second", "[default1]:first", "[default1]:second"});
  CHECK(copies("{ read line; \"$@\"; } < " + file, {"--stdin=all"}) == Words{"[default0]:second", "[default1]:second"});
}
