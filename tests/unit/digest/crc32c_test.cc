#include "worker/digest/crc32c.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace ddprun;

// The values are those of RFC 3720, appendix B.4, and the usual check value.
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

TEST_CASE("CRC-32C by tables and by the processor's instruction is the same, also in parts") {
  std::vector<std::byte> bytes(100);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i + 7);
  const std::span all(bytes);
  CHECK(crc32c_without_instruction(std::as_bytes(std::span(std::string_view("123456789")))) == 0xe3069283);
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    INFO(size);
    const auto whole = crc32c(all.first(size));
    CHECK(crc32c_without_instruction(all.first(size)) == whole);
    CHECK(crc32c(all.subspan(size / 3, size - size / 3), crc32c(all.first(size / 3))) == whole);
  }
}
