#include "tests/support/catch.h"
#include "tests/unit/cuda/headers/facts.h"

namespace ddprun::testing {

// A header in the emulator's version and in the toolkit's.
struct Header {
  const char* name;
  Facts (*emulators)();
  Facts (*toolkits)();
};

}  // namespace ddprun::testing

#include "headers.inc"

using namespace ddprun::testing;

TEST_CASE("the emulator's headers declare what the toolkit's do") {
  for (const Header& header : headers) {
    const Facts own = header.emulators();
    const Facts original = header.toolkits();
    CHECK(own.size() > 20);
    for (const auto& [name, fact] : own) {
      INFO(header.name << ": " << name);
      CHECK(fact == original.at(name));
    }
  }
}
