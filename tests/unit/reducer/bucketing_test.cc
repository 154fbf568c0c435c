#include "worker/reducer/bucketing.h"

#include "tests/support/catch.h"

using namespace ddprun;

namespace {

ParameterRef parameter(std::string name, std::int64_t count, DType dtype = DType::float32) {
  return {.name = std::move(name), .shape = {count}, .dtype = dtype};
}

std::vector<std::size_t> parameters_of(const Bucket& bucket) {
  std::vector<std::size_t> result;
  for (const auto& slice : bucket.slices) result.push_back(slice.parameter);
  return result;
}

}  // namespace

TEST_CASE("parameters go into buckets in reverse, a small first bucket and larger ones after it") {
  // The limits are 64 and 256 bytes: 16 and 64 floats.
  const std::vector<ParameterRef> model = {parameter("a", 16), parameter("b", 48), parameter("c", 16),
                                           parameter("d", 16)};
  const auto buckets = plan_buckets(model, {.first_bytes = 64, .bytes = 256});
  REQUIRE(buckets.size() == 3);
  CHECK(parameters_of(buckets[0]) == std::vector<std::size_t>{3});
  CHECK(parameters_of(buckets[1]) == std::vector<std::size_t>{2, 1});
  CHECK(buckets[1].count == 64);
  CHECK(parameters_of(buckets[2]) == std::vector<std::size_t>{0});
}

TEST_CASE("slices begin on borders of 64 bytes and do not overlap") {
  const std::vector<ParameterRef> model = {parameter("a", 5), parameter("b", 17), parameter("c", 1)};
  const auto buckets = plan_buckets(model, {});
  REQUIRE(buckets.size() == 1);
  CHECK(buckets[0].slices[0].offset == 0);
  CHECK(buckets[0].slices[1].offset == 16);
  CHECK(buckets[0].slices[2].offset == 48);
  CHECK(buckets[0].slices[1].count == 17);
  CHECK(buckets[0].count == 64);
}

TEST_CASE("a bucket holds one element type, buckets are in the order of their first parameters") {
  const std::vector<ParameterRef> model = {parameter("a", 16), parameter("b", 8, DType::float64), parameter("c", 16),
                                           parameter("d", 8, DType::float64)};
  const auto buckets = plan_buckets(model, {});
  REQUIRE(buckets.size() == 2);
  CHECK(buckets[0].dtype == DType::float64);
  CHECK(parameters_of(buckets[0]) == std::vector<std::size_t>{3, 1});
  CHECK(parameters_of(buckets[1]) == std::vector<std::size_t>{2, 0});
}

TEST_CASE("a parameter above the limit has a bucket to itself unless one is open") {
  const std::vector<ParameterRef> model = {parameter("a", 1000), parameter("b", 1000), parameter("c", 1)};
  const auto buckets = plan_buckets(model, {.first_bytes = 64, .bytes = 1000});
  REQUIRE(buckets.size() == 3);
  CHECK(parameters_of(buckets[0]) == std::vector<std::size_t>{2});
  CHECK(parameters_of(buckets[1]) == std::vector<std::size_t>{1});
  CHECK(parameters_of(buckets[2]) == std::vector<std::size_t>{0});
}

TEST_CASE("no parameters, no buckets") {
  CHECK(plan_buckets({}, {}).empty());
}

TEST_CASE("a parameter that is alone has a bucket of its own, in its place") {
  const std::vector<ParameterRef> model = {parameter("a", 16), parameter("b", 16), parameter("c", 16),
                                           parameter("d", 16), parameter("e", 8, DType::float64)};
  const auto buckets = plan_buckets(model, {}, {}, {2});
  REQUIRE(buckets.size() == 4);
  CHECK(parameters_of(buckets[0]) == std::vector<std::size_t>{4});
  CHECK(parameters_of(buckets[1]) == std::vector<std::size_t>{3});
  CHECK(parameters_of(buckets[2]) == std::vector<std::size_t>{2});
  CHECK(parameters_of(buckets[3]) == std::vector<std::size_t>{1, 0});
}

TEST_CASE("parameters that are apart share no bucket with others") {
  const std::vector<ParameterRef> model = {parameter("a", 16), parameter("b", 16), parameter("c", 16),
                                           parameter("d", 16), parameter("e", 16)};
  const auto buckets = plan_buckets(model, {}, {}, {}, {1, 3});
  REQUIRE(buckets.size() == 2);
  CHECK(parameters_of(buckets[0]) == std::vector<std::size_t>{4, 2, 0});
  CHECK(parameters_of(buckets[1]) == std::vector<std::size_t>{3, 1});
}
