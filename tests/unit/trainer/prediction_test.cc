#include "worker/trainer/commands/prediction.h"

#include "worker/data/numbers.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::trainer;

namespace {

struct Identity : nn::Module {
  Variable forward(const Variable& input) override { return input; }
};

std::string predictions(const data::SampleLayout& layout, const std::vector<float>& values, std::int64_t batch_size) {
  Identity model;
  std::string text;
  predict_samples(model, data::NumbersDataset(layout, values), {.batch_size = batch_size},
                  [&](std::string_view part) { text += part; });
  return text;
}

}  // namespace

TEST_CASE("a class is predicted with its softmax probability") {
  const data::SampleLayout layout{.input_shape = {3}, .classes = 3};
  const std::vector<float> scores{0, 0, 0, 1, 3, 2, -1000, 500, 1000};
  for (const std::int64_t batch_size : {1, 2, 10})
    CHECK(predictions(layout, scores, batch_size) ==
          "index,class,probability\n0,0,0.333333\n1,1,0.665241\n2,2,1.000000\n");
}

TEST_CASE("without classes the outputs are the prediction") {
  const data::SampleLayout layout{.input_shape = {2}, .target_shape = {2}, .target_dtype = DType::float32};
  CHECK(predictions(layout, {1.5F, -2, 0.1F, 3}, 10) == "index,output0,output1\n0,1.5,-2\n1,0.1,3\n");
}
