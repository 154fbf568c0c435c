#include "worker/reducer/hooks/integer_code.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/catch.h"

using namespace ddprun;

namespace {

const std::vector<std::size_t> pieces{1, 5, 128, 0, 3};
constexpr std::size_t elements = 137;

struct Form {
  IntegerCode::Bits bits;
  float largest;
  std::size_t bytes;  // bytes of all pieces
};
constexpr Form forms[] = {{IntegerCode::Bits::eight, 127, 5 * 4 + 137},
                          {IntegerCode::Bits::four, 7, 5 * 4 + 1 + 3 + 64 + 0 + 2}};

std::vector<float> decoded(const IntegerCode& code, const std::vector<float>& values) {
  std::vector<std::byte> bytes(code.bytes(pieces));
  code.encode(pieces, values.data(), bytes.data());
  std::vector<float> result(values.size());
  code.decode(pieces, bytes.data(), result.data());
  std::vector<float> sum(values.size(), 1);
  code.add(pieces, bytes.data(), sum.data());
  for (std::size_t i = 0; i < values.size(); ++i)
    if (std::isfinite(result[i])) CHECK(sum[i] == 1 + result[i]);
  return result;
}

}  // namespace

TEST_CASE("integers of 8 and 4 bits are half a unit away at most, in pieces of any size") {
  for (const Form& form : forms) {
    const IntegerCode code(form.bits);
    CHECK(code.bytes(pieces) == form.bytes);
    std::vector<float> values;
    for (std::size_t i = 0; i < elements; ++i)
      values.push_back(static_cast<float>(std::sin(static_cast<double>(i * i))) * (i < 6 ? 1000 : 1));
    const auto found = decoded(code, values);
    for (std::size_t i = 0; i < elements; ++i)
      CHECK(std::abs(found[i] - values[i]) <= (i < 6 ? 1000 : 1) * 0.501 / form.largest);
  }
}

TEST_CASE("a piece of zeros decodes to zeros, and one that is not finite to NaN alone") {
  for (const auto bits : {IntegerCode::Bits::eight, IntegerCode::Bits::four, IntegerCode::Bits::one}) {
    std::vector<float> values(elements, 0.0f);
    values[2] = std::numeric_limits<float>::infinity();  // it is in the second piece
    const auto found = decoded(IntegerCode(bits), values);
    for (std::size_t i = 0; i < elements; ++i) CHECK((i > 0 && i < 6 ? std::isnan(found[i]) : found[i] == 0));
  }
}

TEST_CASE("one bit keeps the signs and the mean magnitude of each piece") {
  const IntegerCode code(IntegerCode::Bits::one);
  CHECK(code.bytes(pieces) == 5 * 4 + 1 + 1 + 16 + 0 + 1);
  std::vector<float> values;
  for (std::size_t i = 0; i < elements; ++i) values.push_back(static_cast<float>(i % 2 == 0 ? i : 0.0 - i));
  const auto found = decoded(code, values);
  std::size_t first = 0;
  for (const std::size_t piece : pieces) {
    for (std::size_t i = first; i < first + piece; ++i) {
      const double mean = static_cast<double>(2 * first + piece - 1) / 2;
      CHECK(found[i] == Approx(i % 2 == 0 ? mean : -mean));
    }
    first += piece;
  }
}

TEST_CASE("the mean magnitude of finite values is finite") {
  const std::vector<float> values(elements, std::numeric_limits<float>::max() / 2);
  for (const float each : decoded(IntegerCode(IntegerCode::Bits::one), values)) CHECK(each == Approx(values[0]));
}
