#include "tests/structure/include_graph.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <regex>

namespace ddprun::testing {
namespace fs = std::filesystem;
namespace {

bool is_source(const fs::path& file) {
  static const std::set<std::string> suffixes = {".h", ".cc", ".cu", ".cuh"};
  return suffixes.contains(file.extension().string());
}

std::string contents(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<std::string> backquoted(const std::string& text) {
  static const std::regex name("`([^`]+)`");
  std::vector<std::string> names;
  for (std::sregex_iterator match(text.begin(), text.end(), name), end; match != end; ++match)
    names.push_back((*match)[1]);
  return names;
}

// The search is depth first; the path holds the layers from the root to the current one.
class CycleSearch {
 public:
  explicit CycleSearch(const LayerTable& includes) : includes_(includes) {}

  std::vector<std::string> run() {
    for (const auto& [layer, targets] : includes_)
      if (visit(layer)) return cycle_;
    return {};
  }

 private:
  bool visit(const std::string& layer) {
    if (const auto at = std::find(path_.begin(), path_.end(), layer); at != path_.end()) {
      cycle_.assign(at, path_.end());
      return true;
    }
    if (!done_.insert(layer).second) return false;
    path_.push_back(layer);
    if (const auto row = includes_.find(layer); row != includes_.end()) {
      for (const auto& target : row->second)
        if (visit(target)) return true;
    }
    path_.pop_back();
    return false;
  }

  const LayerTable& includes_;
  std::set<std::string> done_;
  std::vector<std::string> path_, cycle_;
};

}  // namespace

std::string layer_of(const fs::path& file, const std::set<std::string>& folders) {
  const auto folder = file.parent_path().string();
  const auto stem = folder + "/" + file.stem().string();
  if (folders.contains(stem)) return stem;
  const auto subfolder = folders.lower_bound(folder + "/");
  if (subfolder == folders.end() || !subfolder->starts_with(folder + "/")) return folder;
  return folder + (file.extension() == ".h" ? "/*.h" : "/*.cc");
}

std::vector<std::string> project_includes(std::string_view source) {
  static const std::regex line("(^|\n)#include \"((common|rendezvous|launcher|worker)/[^\"]+)\"");
  std::vector<std::string> paths;
  for (std::cregex_iterator match(source.begin(), source.end(), line), end; match != end; ++match)
    paths.push_back((*match)[2]);
  return paths;
}

IncludeGraph read_include_graph(const fs::path& tree, const std::vector<std::string>& parts) {
  std::vector<fs::path> files;
  std::set<std::string> folders;
  for (const auto& part : parts) {
    for (const auto& entry : fs::recursive_directory_iterator(tree / part)) {
      const auto path = entry.path().lexically_relative(tree);
      if (!is_source(path)) continue;
      files.push_back(path);
      folders.insert(path.parent_path().string());
    }
  }
  std::sort(files.begin(), files.end());

  IncludeGraph graph;
  for (const auto& file : files) {
    const auto from = layer_of(file, folders);
    graph.layers.insert(from);
    for (const auto& included : project_includes(contents(tree / file))) {
      if (!fs::exists(tree / included)) graph.missing.push_back(file.string() + " includes " + included);
      const auto to = layer_of(included, folders);
      if (to != from) graph.edges.push_back({from, to, file.string(), included});
    }
  }
  return graph;
}

LayerTable read_layer_table(std::string_view page, std::string_view section) {
  LayerTable table;
  const auto start = page.find(section);
  if (start == page.npos) return table;
  const auto end = page.find("\n## ", start + section.size());
  const std::string text(page.substr(start, end == page.npos ? end : end - start));
  static const std::regex row("\n\\| `([^`]+)` \\|([^|\n]*)\\|");
  for (std::sregex_iterator match(text.begin(), text.end(), row), last; match != last; ++match) {
    const auto names = backquoted((*match)[2]);
    table[(*match)[1]] = {names.begin(), names.end()};
  }
  return table;
}

std::vector<std::string> find_cycle(const LayerTable& includes) {
  return CycleSearch(includes).run();
}

}  // namespace ddprun::testing
