// Each form of parallel training as a complete program: it is short, and it learns.
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/child.h"

using namespace ddprun::testing;

namespace {

constexpr int most_lines = 60;

std::vector<std::string> examples() {
  std::vector<std::string> names;
  std::istringstream list(EXAMPLES);
  for (std::string name; list >> name;) names.push_back(name);
  return names;
}

int lines_of(const std::filesystem::path& file) {
  std::ifstream text(file);
  int lines = 0;
  for (std::string line; std::getline(text, line);) ++lines;
  return lines;
}

std::vector<double> losses_in(const std::string& out) {
  const std::regex number("loss ([0-9.]+)");
  std::vector<double> losses;
  for (std::sregex_iterator found(out.begin(), out.end(), number), end; found != end; ++found)
    losses.push_back(std::stod((*found)[1]));
  return losses;
}

}  // namespace

TEST_CASE("each example is a short program that learns with two processes") {
  REQUIRE(examples().size() > 1);
  for (const auto& name : examples()) {
    INFO(name);
    const int lines = lines_of(std::filesystem::path(EXAMPLE_SOURCES) / (name + ".cc"));
    CHECK((lines > 0 && lines <= most_lines));
    const auto result = Child({DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=2", "--max_restarts=1",
                               (std::filesystem::path(EXAMPLE_PROGRAMS) / ("example_" + name)).string()},
                              {{"OMP_NUM_THREADS", "1"}})
                            .wait(std::chrono::seconds(60));
    INFO(result.out << result.err);
    CHECK(result.code == 0);
    const auto losses = losses_in(result.out);
    REQUIRE(losses.size() >= 2);
    CHECK(losses.back() < losses.front() / 2);
  }
}

TEST_CASE("every example in the folder is run") {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(EXAMPLE_SOURCES))
    if (entry.path().extension() == ".cc" && !entry.path().stem().string().ends_with("_test"))
      found.push_back(entry.path().stem().string());
  std::sort(found.begin(), found.end());
  CHECK(found == examples());
}
