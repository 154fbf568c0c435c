#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::testing {

// The layer of a source file, given by its path in the tree: its folder. In a folder that has sub-folders, headers and
// sources are layers of their own ("worker/comm/*.h", "worker/comm/*.cc"), since its headers lie below the sub-folders
// and its sources above them; but a header named like a sub-folder (ops.h beside ops/) belongs to that sub-folder.
std::string layer_of(const std::filesystem::path& file, const std::set<std::string>& folders);

// The paths, relative to the tree, of the headers of the product that a source includes.
std::vector<std::string> project_includes(std::string_view source);

// An include that leaves its layer, by one file that has it.
struct Edge {
  std::string from, to;  // layers
  std::string file;
  std::string included;
};
struct IncludeGraph {
  std::set<std::string> layers;
  std::vector<Edge> edges;
  std::vector<std::string> missing;  // "file includes X, which does not exist"
};
// Reads the graph of the sources under these folders of the tree.
IncludeGraph read_include_graph(const std::filesystem::path& tree, const std::vector<std::string>& parts);

using LayerTable = std::map<std::string, std::set<std::string>>;  // the layers that each layer may include

// Reads the rows "| `layer` | `layer` `layer` ... |" of a page's section.
LayerTable read_layer_table(std::string_view page, std::string_view section);

// The layers of one cycle, in order; empty when there is none.
std::vector<std::string> find_cycle(const LayerTable& includes);

}  // namespace ddprun::testing
