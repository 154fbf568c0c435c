#include "common/float16.h"

#include <cmath>
#include <limits>

#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("every float16 converts to float32 and back unchanged") {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = float_from_float16(half);
    if (std::isnan(value)) {
      REQUIRE(std::isnan(float_from_float16(float16_from_float(value))));
    } else {
      REQUIRE(float16_from_float(value) == half);
    }
  }
}

TEST_CASE("float16 values are those of the format") {
  CHECK(float_from_float16(0x3c00) == 1.0f);
  CHECK(float_from_float16(0xc000) == -2.0f);
  CHECK(float_from_float16(0x7bff) == 65504.0f);
  CHECK(float_from_float16(0x0001) == 0x1p-24f);
  CHECK(float_from_float16(0x0400) == 0x1p-14f);
  CHECK(std::isinf(float_from_float16(0x7c00)));
}

TEST_CASE("float16 rounds to nearest, ties to even") {
  CHECK(float16_from_float(1.0f + 0x1p-11f) == 0x3c00);
  CHECK(float16_from_float(1.0f + 3 * 0x1p-11f) == 0x3c02);
  CHECK(float16_from_float(1.0f + 0x1p-11f + 0x1p-20f) == 0x3c01);
  CHECK(float16_from_float(0x1p-25f) == 0x0000);
  CHECK(float16_from_float(3 * 0x1p-25f) == 0x0002);
  CHECK(float16_from_float(65519.0f) == 0x7bff);
  CHECK(float16_from_float(65520.0f) == 0x7c00);
  CHECK(float16_from_float(std::numeric_limits<float>::infinity()) == 0x7c00);
}

TEST_CASE("bfloat16 rounds to nearest, ties to even, and keeps NaN") {
  CHECK(bfloat16_from_float(1.0f) == 0x3f80);
  CHECK(bfloat16_from_float(1.0f + 0x1p-8f) == 0x3f80);
  CHECK(bfloat16_from_float(1.0f + 3 * 0x1p-8f) == 0x3f82);
  CHECK(float_from_bfloat16(0x4049) == 3.140625f);
  CHECK(std::isnan(float_from_bfloat16(bfloat16_from_float(std::numeric_limits<float>::quiet_NaN()))));
  CHECK(std::isinf(float_from_bfloat16(bfloat16_from_float(std::numeric_limits<float>::max()))));
}
