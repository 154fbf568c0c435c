#pragma once

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

// The fenced code blocks of a Markdown page.
namespace ddprun::testing {

struct CodeBlock {
  std::string page;      // path relative to the tree
  int line = 0;          // line of the opening fence
  std::string language;  // "cpp"; may be empty
  std::vector<std::string> lines;

  std::string where() const { return page + ":" + std::to_string(line); }
};

inline std::vector<std::string> lines_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

inline std::vector<CodeBlock> code_blocks_of(const std::filesystem::path& tree, const std::string& page) {
  std::vector<CodeBlock> blocks;
  bool within = false;
  int number = 0;
  for (const auto& line : lines_in(tree / page)) {
    ++number;
    if (line.starts_with("```")) {
      within = !within;
      if (within) blocks.push_back({.page = page, .line = number, .language = line.substr(3), .lines = {}});
    } else if (within) {
      blocks.back().lines.push_back(line);
    }
  }
  if (within) throw std::runtime_error(blocks.back().where() + ": the block has no end");
  return blocks;
}

// Returns the blocks of the README and of each page in docs/.
inline std::vector<CodeBlock> documented_code(const std::filesystem::path& tree) {
  auto blocks = code_blocks_of(tree, "README.md");
  for (const auto& file : std::filesystem::directory_iterator(tree / "docs")) {
    if (file.path().extension() != ".md") continue;
    const auto more = code_blocks_of(tree, "docs/" + file.path().filename().string());
    blocks.insert(blocks.end(), more.begin(), more.end());
  }
  return blocks;
}

}  // namespace ddprun::testing
