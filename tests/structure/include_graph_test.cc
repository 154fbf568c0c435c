#include "tests/structure/include_graph.h"

#include "tests/support/catch.h"

using namespace ddprun::testing;
using Names = std::vector<std::string>;

TEST_CASE("a file's layer is its folder") {
  CHECK(layer_of("common/log.h", {}) == "common");
  CHECK(layer_of("worker/comm/work.h", {"worker/comm"}) == "worker/comm/*.h");
  CHECK(layer_of("worker/comm/init.cc", {"worker/comm"}) == "worker/comm/*.cc");
  CHECK(layer_of("worker/comm/shm/pause.h", {"worker/comm"}) == "worker/comm/shm");
}

TEST_CASE("only the project's own includes count") {
  CHECK(project_includes("#include \"ddprun/common/log.h\"\n#include <vector>\n#include \"other.h\"\n"
                         "  // #include \"ddprun/in/a/comment.h\"\n#include \"ddprun/worker/x.h\"\n") ==
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
