// The code in the README and in docs/ is that of files which other tests compile or run.
#include "tests/support/code_blocks.h"

#include <algorithm>
#include <map>
#include <optional>
#include <regex>

#include "tests/support/catch.h"

using namespace ddprun::testing;
namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

namespace {

const fs::path tree = SOURCE_FOLDER;

// The folders of the code in a language. A test builds or executes what is in them.
const std::map<std::string, std::vector<std::string>> sources{
    {"cpp", {"tests/process", "tests/examples", "tests/package/consumer", "tests/libtorch"}},
    {"cmake", {"tests/package/consumer", "tests/libtorch"}},
    {"python", {"tests/python"}},
};

// Returns a line without indentation, trailing blanks and, outside C++, trailing comments: a page may explain a line.
std::string normal_form(const std::string& line, const std::string& language) {
  auto text = line;
  if (language != "cpp") text = text.substr(0, text.find('#'));
  const auto begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// A blank line in an excerpt stands for what it leaves out; the lines of a piece follow each other in the file.
std::vector<Lines> pieces_of(const CodeBlock& block) {
  std::vector<Lines> pieces(1);
  for (const auto& line : block.lines) {
    const auto normal = normal_form(line, block.language);
    if (!normal.empty()) {
      pieces.back().push_back(normal);
    } else if (!pieces.back().empty()) {
      pieces.emplace_back();
    }
  }
  if (pieces.back().empty()) pieces.pop_back();
  return pieces;
}

// Returns whether the file has all pieces, in their order.
bool is_excerpt(const std::vector<Lines>& pieces, const Lines& file) {
  auto from = file.begin();
  for (const auto& piece : pieces) {
    const auto found = std::search(from, file.end(), piece.begin(), piece.end());
    if (found == file.end()) return false;
    from = found + std::ssize(piece);
  }
  return true;
}

std::optional<std::string> source_of(const CodeBlock& block) {
  const auto pieces = pieces_of(block);
  for (const auto& folder : sources.at(block.language)) {
    for (const auto& entry : fs::directory_iterator(tree / folder)) {
      if (!entry.is_regular_file()) continue;
      auto lines = lines_in(entry.path());
      for (auto& line : lines) line = normal_form(line, block.language);
      if (is_excerpt(pieces, lines)) return entry.path().string();
    }
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("code in the README and in docs/ is an excerpt of a file that a test builds or runs") {
  int checked = 0;
  for (const auto& block : documented_code(tree)) {
    if (!sources.contains(block.language)) continue;
    ++checked;
    INFO(block.where());
    CHECK(source_of(block));
  }
  CHECK(checked >= 10);
}

TEST_CASE("a program that a page shows as the whole of a file is that file") {
  static const std::regex whole("The whole of `([^`]+)`:");
  int checked = 0;
  for (const auto& block : documented_code(tree)) {
    if (block.language != "cpp") continue;
    const auto page = lines_in(tree / block.page);
    std::smatch match;
    const auto& above = page.at(static_cast<std::size_t>(block.line) - 3);  // a blank line lies between
    if (!std::regex_search(above, match, whole)) continue;
    ++checked;
    INFO(block.where());
    CHECK(block.lines == lines_in(tree / match[1].str()));
  }
  CHECK(checked >= 2);
}

TEST_CASE("lines that a file has in another order, or with another between them, are no excerpt of it") {
  const Lines file{"a", "b", "c", "d"};
  CHECK(is_excerpt({{"a", "b"}, {"d"}}, file));
  CHECK_FALSE(is_excerpt({{"d"}, {"a", "b"}}, file));
  CHECK_FALSE(is_excerpt({{"a", "c"}}, file));
}
