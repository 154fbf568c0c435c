#include "tests/structure/include_graph.h"

#include "tests/support/catch.h"

using namespace ddprun::testing;
using Names = std::vector<std::string>;

TEST_CASE("a file's layer is its folder, or the headers or the sources of one that has sub-folders") {
  const std::set<std::string> folders{"common", "worker/comm", "worker/comm/shm", "worker/autograd",
                                      "worker/autograd/ops"};
  CHECK(layer_of("common/log.h", folders) == "common");
  CHECK(layer_of("worker/comm/work.h", folders) == "worker/comm/*.h");
  CHECK(layer_of("worker/comm/init.cc", folders) == "worker/comm/*.cc");
  CHECK(layer_of("worker/comm/shm/pause.h", folders) == "worker/comm/shm");
  CHECK(layer_of("worker/autograd/ops.h", folders) == "worker/autograd/ops");
}

TEST_CASE("only the project's own includes count") {
  CHECK(project_includes("#include \"common/log.h\"\n#include <vector>\n#include \"other.h\"\n"
                         "  // #include \"in/a/comment.h\"\n#include \"worker/x.h\"\n") ==
        Names{"common/log.h", "worker/x.h"});
}

TEST_CASE("a layer table is read from its own section alone") {
  const auto table = read_layer_table(
      "## Before\n| `x` | `y` |\n## Layers\n\n| layer | may include |\n|---|---|\n| `a` | |\n| `b` | `a` `c` |\n## "
      "After\n| `z` | |\n",
      "## Layers");
  CHECK(table == LayerTable{{"a", {}}, {"b", {"a", "c"}}});
  CHECK(read_layer_table("no such section", "## Layers").empty());
}

TEST_CASE("a cycle of layers is found and named") {
  CHECK(find_cycle({{"a", {"b"}}, {"b", {"c"}}, {"c", {}}, {"d", {"a", "c"}}}).empty());
  CHECK(find_cycle({{"a", {"b"}}, {"b", {"c"}}, {"c", {"b"}}}) == Names{"b", "c"});
}
