#include "ddprun/worker/digest/crc32c.h"

#include <string>

#include "tests/support/catch.h"

using namespace ddprun;

// The vectors of RFC 3720, appendix B.4, and the usual check value.
TEST_CASE("CRC-32C of known bytes") {
  std::string ascending, descending;
  for (int i = 0; i < 32; ++i) ascending.push_back(static_cast<char>(i));
  descending.assign(ascending.rbegin(), ascending.rend());
  CHECK(crc32c("") == 0);
  CHECK(crc32c("123456789") == 0xe3069283);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aa);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43);
  CHECK(crc32c(ascending) == 0x46dd794e);
  CHECK(crc32c(descending) == 0x113fdb5c);
}
