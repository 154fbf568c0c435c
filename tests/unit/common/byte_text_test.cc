#include "common/byte_text.h"

#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("bytes are written in the unit that suits them") {
  constexpr std::size_t kib = 1024, mib = 1024 * kib, gib = 1024 * mib;
  CHECK(byte_text(0) == "0 bytes");
  CHECK(byte_text(kib - 1) == "1023 bytes");
  CHECK(byte_text(kib) == "1.0 KiB");
  CHECK(byte_text(12 * mib + mib / 2) == "12.5 MiB");
  CHECK(byte_text(80 * gib) == "80.00 GiB");
}
