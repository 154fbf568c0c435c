#include "rendezvous/trust/secret.h"

#include <algorithm>
#include <new>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "rendezvous/trust/key_derivation.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

std::string to_hex(std::span<const unsigned char> bytes) {
  std::string text;
  for (const auto byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

TEST_CASE("a token survives its text, and two tokens differ") {
  const auto token = Secret::random();
  const auto text = SecretText::hex_of(token);
  CHECK(text.view().size() == 64);
  CHECK(equal_in_constant_time(Secret::from_hex(text.view()).bytes(), token.bytes()));
  CHECK_FALSE(equal_in_constant_time(Secret::random().bytes(), token.bytes()));
}

TEST_CASE("a text that is no token is refused without being repeated") {
  const std::string digits(64, 'a');
  for (const auto& text : {digits + "a", digits.substr(1), std::string(), std::string(64, 'g'), std::string(64, 'A')}) {
    INFO(text);
    try {
      Secret::from_hex(text);
      FAIL("accepted");
    } catch (const Error& e) {
      CHECK(e.code() == Errc::usage);
      CHECK((text.empty() || std::string(e.what()).find(text) == std::string::npos));
    }
  }
}

TEST_CASE("a secret that is moved or given as bytes leaves no copy behind") {
  Secret::Bytes bytes;
  bytes.fill(7);
  Secret first(bytes);
  CHECK(std::ranges::all_of(bytes, [](unsigned char byte) { return byte == 0; }));
  const Secret second(std::move(first));
  CHECK(std::ranges::all_of(first.bytes(), [](unsigned char byte) { return byte == 0; }));  // NOLINT: moved from
  CHECK(std::ranges::all_of(second.bytes(), [](unsigned char byte) { return byte == 7; }));
}

TEST_CASE("a destroyed secret is cleared") {
  alignas(Secret) unsigned char place[sizeof(Secret)];
  Secret::Bytes bytes;
  bytes.fill(9);
  auto* secret = new (place) Secret(bytes);
  REQUIRE(std::count(std::begin(place), std::end(place), 9) == 32);
  secret->~Secret();
  CHECK(std::count(std::begin(place), std::end(place), 9) == 0);
}

TEST_CASE("wiping a text clears the whole buffer") {
  std::string text(40, 'x');
  text.reserve(100);
  const char* const buffer = text.data();
  wipe(text);
  CHECK(text.empty());
  REQUIRE(text.data() == buffer);
  CHECK(std::count(buffer, buffer + 40, 'x') == 0);
}

TEST_CASE("comparison sees every byte") {
  Secret::Bytes bytes;
  bytes.fill(1);
  const auto same = bytes;
  CHECK(equal_in_constant_time(bytes, same));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    auto other = same;
    other[i] ^= 1;
    CHECK_FALSE(equal_in_constant_time(same, other));
  }
  CHECK_FALSE(equal_in_constant_time(std::span(same).first(31), same));
}

TEST_CASE("HMAC and HKDF give the values of their RFCs") {
  // The vector is RFC 4231, test case 2.
  const std::string key = "Jefe";
  const auto code = authentication_code({reinterpret_cast<const unsigned char*>(key.data()), key.size()},
                                        "what do ya want for nothing?");
  CHECK(to_hex(code) == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  // The vector is RFC 5869, test case 3: no salt and no info. Its output is longer, the first block is the same.
  const std::string input(22, '\x0b');
  const auto derived = derive_key({reinterpret_cast<const unsigned char*>(input.data()), input.size()}, "");
  CHECK(to_hex(derived.bytes()) == "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d");
}

TEST_CASE("keys for different purposes differ") {
  const auto token = Secret::random();
  CHECK_FALSE(equal_in_constant_time(derive_key(token.bytes(), "a").bytes(), derive_key(token.bytes(), "b").bytes()));
  CHECK(equal_in_constant_time(derive_key(token.bytes(), "a").bytes(), derive_key(token.bytes(), "a").bytes()));
}
