#include <fstream>
#include <iterator>

#include "tests/structure/include_graph.h"
#include "tests/support/catch.h"

using namespace ddprun::testing;

namespace {

const std::filesystem::path tree = SOURCE_FOLDER;

const IncludeGraph& graph() {
  static const auto all = read_include_graph(tree, {"common", "rendezvous", "launcher", "worker"});
  return all;
}

LayerTable allowed() {
  std::ifstream page(tree / "docs/architecture.md");
  return read_layer_table(std::string(std::istreambuf_iterator<char>(page), {}), "## Layers");
}

}  // namespace

TEST_CASE("every included header exists") {
  CHECK(graph().missing == std::vector<std::string>{});
}

TEST_CASE("no folders include each other in a cycle") {
  LayerTable includes;
  for (const auto& edge : graph().edges) includes[edge.from].insert(edge.to);
  CHECK(find_cycle(includes) == std::vector<std::string>{});
}

TEST_CASE("a folder includes only what the layer table of docs/architecture.md allows") {
  const auto table = allowed();
  REQUIRE_FALSE(table.empty());
  std::set<std::string> forbidden;
  for (const auto& edge : graph().edges) {
    const auto row = table.find(edge.from);
    if (row == table.end() || !row->second.contains(edge.to))
      forbidden.insert(edge.file + " includes " + edge.included + ": `" + edge.from + "` may not include `" + edge.to +
                       "`");
  }
  CHECK(forbidden == std::set<std::string>{});
}

TEST_CASE("the layer table names every folder, and nothing that is not there or not used") {
  const auto table = allowed();
  std::set<std::string> rows;
  for (const auto& [layer, targets] : table) rows.insert(layer);
  CHECK(rows == graph().layers);

  LayerTable used;
  for (const auto& edge : graph().edges) used[edge.from].insert(edge.to);
  std::set<std::string> unused;
  for (const auto& [layer, targets] : table)
    for (const auto& target : targets)
      if (!used[layer].contains(target)) unused.insert(layer + " -> " + target);
  CHECK(unused == std::set<std::string>{});
}
