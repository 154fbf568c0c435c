#include "tests/structure/type_names.h"

#include "tests/support/catch.h"

using namespace ddprun::testing;

namespace {

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("types are found by their whole names, those that only one source sees are not") {
  CHECK(defined_types("namespace a::b { struct C { enum class D : int { x }; }; class E final : public F<G> {}; }") ==
        Names{"a::b::C", "a::b::C::D", "a::b::E"});
  CHECK(defined_types("namespace a { struct C; class D* d; template <class T> void f(); }") == Names{});
  CHECK(defined_types("namespace a { namespace { struct C {}; } void f() { struct D {}; } struct E {}; }") ==
        Names{"a::E"});
  CHECK(defined_types("namespace a { template <> struct hash<C> {}; }") == Names{});
  CHECK(defined_types("// struct C {\nchar c = '{'; /* { */ const char* s = R\"(\" {)\" \"\\\"{\"; struct D {};") ==
        Names{"D"});
}

// Two types of one name in one namespace break the one definition rule in a program that has both.
TEST_CASE("no two files define a type of the same name in the same namespace") {
  CHECK(types_defined_twice(SOURCE_FOLDER, {"common", "rendezvous", "launcher", "worker"}) == Names{});
}
