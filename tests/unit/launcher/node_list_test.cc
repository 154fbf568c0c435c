#include "launcher/cluster/node_list.h"

#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;
using Hosts = std::vector<std::string>;
using Counts = std::vector<int>;

TEST_CASE("a node list has names, ranges, lists in brackets, and several brackets in one name") {
  CHECK(expand_node_list("login2") == Hosts{"login2"});
  CHECK(expand_node_list("a,b.c") == Hosts{"a", "b.c"});
  CHECK(expand_node_list("n[1-3,7],login2") == Hosts{"n1", "n2", "n3", "n7", "login2"});
  CHECK(expand_node_list("r[0-1]c[1-2]-ib") == Hosts{"r0c1-ib", "r0c2-ib", "r1c1-ib", "r1c2-ib"});
  CHECK(expand_node_list("[1-2]") == Hosts{"1", "2"});
}

TEST_CASE("numbers of a range are padded to the width of the first") {
  CHECK(expand_node_list("n[08-10]") == Hosts{"n08", "n09", "n10"});
  CHECK(expand_node_list("n[8-10]") == Hosts{"n8", "n9", "n10"});
  CHECK(expand_node_list("n[001,0100]") == Hosts{"n001", "n0100"});
}

TEST_CASE("text that is not a node list is refused and quoted") {
  for (const auto* text : {"", ",", "a,", ",a", "a,,b", "n[1-3", "n1-3]", "n[]", "n[3-1]", "n[x]", "n[1-]", "n[1,]",
                           "n[-1]", "n[1-99999999999]", "n[[1]]"}) {
    INFO(text);
    CHECK_THROWS_WITH(expand_node_list(text), Catch::StartsWith("'" + std::string(text) + "' is not a node list"));
  }
  CHECK_THROWS_WITH(expand_node_list("n[0-9][0-99][0-999]"), Catch::Contains("more than 65536 hosts"));
  CHECK_THROWS_WITH(expand_node_list("n[0-999999999]"), Catch::Contains("more than 65536 hosts"));
}

TEST_CASE("counts have one number per node, and repetitions are compressed") {
  CHECK(expand_counts("1") == Counts{1});
  CHECK(expand_counts("2(x3),1") == Counts{2, 2, 2, 1});
  for (const auto* text : {"", "x", "1,", "2(3)", "2(x", "2(x)", "1(x65537)", "-1"}) {
    INFO(text);
    CHECK_THROWS_AS(expand_counts(text), Error);
  }
}
