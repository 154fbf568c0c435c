#include "worker/digest/sha256.h"

#include "tests/support/catch.h"

using ddprun::Sha256;

TEST_CASE("the digest of 'abc' is that of FIPS 180-4") {
  Sha256 whole;
  whole.update("abc");
  CHECK(whole.hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 pieces;
  pieces.update("a");
  pieces.update("bc");
  CHECK(pieces.hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
