#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "tests/support/catch.h"

namespace fs = std::filesystem;

namespace {

const fs::path tree = SOURCE_FOLDER;

std::string page(const std::string& name) {
  std::ifstream file(tree / name);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the paths of the tree between backquotes: they begin with one of its folders. <...> is a wildcard.
std::set<std::string> named_paths(const std::string& text) {
  static const std::regex path(
      "`((common|rendezvous|launcher|worker|configs|scripts|tests|docs|\\.ci)/[A-Za-z0-9_./-]*[A-Za-z0-9_])/?`");
  std::set<std::string> paths;
  for (std::sregex_iterator match(text.begin(), text.end(), path), end; match != end; ++match)
    paths.insert((*match)[1]);
  return paths;
}

// Returns whether a path exists, or a pair of header and source named without suffix.
bool exists(const std::string& path) {
  return fs::exists(tree / path) || fs::exists(tree / (path + ".h")) || fs::exists(tree / (path + ".cc"));
}

std::set<std::string> missing_in(const std::string& name) {
  std::set<std::string> missing;
  for (const auto& path : named_paths(page(name)))
    if (!exists(path)) missing.insert(path);
  return missing;
}

}  // namespace

TEST_CASE("the files that docs/contributing.md names exist") {
  CHECK(named_paths(page("docs/contributing.md")).size() > 20);  // at least the page was read
  CHECK(missing_in("docs/contributing.md") == std::set<std::string>{});
}

TEST_CASE("the files that docs/architecture.md names exist") {
  CHECK(named_paths(page("docs/architecture.md")).size() > 20);
  CHECK(missing_in("docs/architecture.md") == std::set<std::string>{});
}
