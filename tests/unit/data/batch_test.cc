#include "worker/data/batch.h"

#include "common/error.h"
#include "worker/data/loader.h"
#include "worker/data/random_tensors.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::data;

TEST_CASE("a batch has an input and a target, one row a sample, and knows which samples they are") {
  const RandomTensors set({.size = 9, .input_shape = {2, 3}, .outputs = 4});
  const auto batch = make_batch(set, {7, 0, 7}, 5);
  CHECK(batch.size() == 3);
  CHECK(batch.samples == std::vector<std::int64_t>{7, 0, 7});
  CHECK(batch.epoch == 5);
  CHECK(batch.input().shape() == Shape{3, 2, 3});
  CHECK(batch.target().shape() == Shape{3, 4});
  const auto* input = batch.input().data<float>();
  CHECK(std::equal(input, input + 6, input + 12));
  CHECK_FALSE(std::equal(input, input + 6, input + 6));
}

TEST_CASE("a batch may have further tensors, and names them where one is missing") {
  Batch batch;
  batch.add("input", Tensor::empty({2, 4}, DType::float32));
  batch.add("mask", Tensor::empty({2}, DType::int64));
  CHECK(batch.at("mask").shape() == Shape{2});
  CHECK_THROWS_WITH(batch.target(), "a batch has no tensor target, only: input, mask");
}

TEST_CASE("a loader stamps its batches with their samples and the epoch") {
  const RandomTensors set({.size = 9});
  for (const int workers : {0, 2}) {
    Loader loader(set, BatchList{.indices = {5, 3, 8}, .ends = {2, 3}}, {.workers = workers, .epoch = 4});
    const auto first = loader.next(), second = loader.next();
    CHECK(first->samples == std::vector<std::int64_t>{5, 3});
    CHECK(second->samples == std::vector<std::int64_t>{8});
    CHECK(first->epoch == 4);
    CHECK(second->epoch == 4);
  }
}
