#include "worker/data/augmentation.h"

#include <cstring>
#include <map>
#include <set>

#include "common/error.h"
#include "worker/data/digits.h"
#include "worker/data/distributed_sampler.h"
#include "worker/data/epoch_plan.h"
#include "worker/data/loader.h"
#include "worker/data/patterns.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::data;

namespace {

constexpr std::int64_t height = 3, width = 4;

// Sample i has two planes of numbers from 100 i on, whose black is -1 and -2.
class Numbered : public Dataset {
 public:
  std::int64_t size() const override { return 200; }
  const SampleLayout& layout() const override { return layout_; }
  void read(std::int64_t index, std::span<std::byte> input, std::span<std::byte> target) const override {
    for (std::size_t at = 0; at < input.size() / sizeof(float); ++at) {
      const auto value = static_cast<float>(100 * index) + static_cast<float>(at);
      std::memcpy(input.data() + at * sizeof(float), &value, sizeof(value));
    }
    std::memcpy(target.data(), &index, sizeof(index));
  }

 private:
  SampleLayout layout_{.input_shape = {2, height, width}, .classes = 200, .black = {-1, -2}};
};

using Image = std::vector<float>;

Image image_of(const Batch& batch, std::int64_t row = 0) {
  const auto values = batch.input().numel() / batch.size();
  const float* begin = batch.input().data<float>() + row * values;
  return {begin, begin + values};
}

Image augmented(const AugmentationOptions& options, std::int64_t sample, std::uint64_t seed = 0,
                std::int64_t epoch = 0) {
  const Numbered set;
  Batch batch = make_batch(set, {sample}, epoch);
  Augmentation(options, set.layout()).apply(batch, seed);
  return image_of(batch);
}

// Returns the expected image of RandomCrop and RandomHorizontalFlip, computed independently, by position.
Image expected(std::int64_t sample, std::int64_t down, std::int64_t right, bool flipped) {
  Image image;
  for (std::int64_t c = 0; c < 2; ++c)
    for (std::int64_t y = 0; y < height; ++y)
      for (std::int64_t x = 0; x < width; ++x) {
        const std::int64_t from_y = y - down, from_x = (flipped ? width - 1 - x : x) - right;
        const bool inside = from_y >= 0 && from_y < height && from_x >= 0 && from_x < width;
        image.push_back(static_cast<float>(inside ? 100 * sample + (c * height + from_y) * width + from_x : -1 - c));
      }
  return image;
}

// Returns each sample's image of one epoch, read by that many ranks with that many loader threads.
std::map<std::int64_t, Image> epoch_of(const Dataset& set, int world_size, int workers, std::int64_t batch_size) {
  const Augmentation augmentation({.crop_padding = 4, .flip = true, .cutout = 6}, set.layout());
  const Mixup mixup(0.4, set.layout());
  const EpochPlan plan{.size = set.size(), .step_samples = batch_size * world_size, .parts = world_size};
  std::map<std::int64_t, Image> images;
  for (int rank = 0; rank < world_size; ++rank) {
    Loader loader(set, batches_of_parts(plan, epoch_order(set.size(), 3, 5, true), 0, {rank}, batch_size),
                  {.workers = workers, .epoch = 5, .augmentation = &augmentation, .mixup = &mixup, .seed = 3});
    while (const auto batch = loader.next())
      for (std::int64_t row = 0; row < batch->size(); ++row)
        images[batch->samples[static_cast<std::size_t>(row)]] = image_of(*batch, row);
  }
  return images;
}

}  // namespace

TEST_CASE("an image is cropped to every place within its padding, and flipped or not") {
  std::map<Image, int> possible;
  for (int down = -1; down <= 1; ++down)
    for (int right = -1; right <= 1; ++right)
      for (const bool flipped : {false, true}) possible[expected(7, down, right, flipped)] = 0;
  REQUIRE(possible.size() == 18);
  for (std::int64_t epoch = 0; epoch < 900; ++epoch) {
    const auto found = possible.find(augmented({.crop_padding = 1, .flip = true}, 7, 0, epoch));
    REQUIRE(found != possible.end());
    ++found->second;
  }
  for (const auto& [image, times] : possible) CHECK(times > 20);  // about 50 on average
}

TEST_CASE("flipping and cropping are independent options") {
  int flips = 0;
  for (std::int64_t sample = 0; sample < 200; ++sample) {
    const Image flipped = augmented({.flip = true}, sample);
    CHECK((flipped == expected(sample, 0, 0, true) || flipped == expected(sample, 0, 0, false)));
    flips += flipped == expected(sample, 0, 0, true);
  }
  CHECK(flips > 60);
  CHECK(flips < 140);
  CHECK(augmented({}, 9) == expected(9, 0, 0, false));
}

TEST_CASE("a square around every pixel is cut out, as far as it is in the image") {
  for (const std::int64_t side : {1, 2, 3, 9}) {
    std::map<Image, int> possible;
    for (std::int64_t y = 0; y < height; ++y)
      for (std::int64_t x = 0; x < width; ++x) {
        Image image = expected(7, 0, 0, false);
        for (std::int64_t c = 0; c < 2; ++c)
          for (std::int64_t row = 0; row < height; ++row)
            for (std::int64_t column = 0; column < width; ++column)
              if (row >= y - side / 2 && row < y - side / 2 + side && column >= x - side / 2 &&
                  column < x - side / 2 + side)
                image[static_cast<std::size_t>((c * height + row) * width + column)] = 0;
        possible[image] = 0;
      }
    for (std::int64_t epoch = 0; epoch < 600; ++epoch) {
      const auto found = possible.find(augmented({.cutout = side}, 7, 0, epoch));
      REQUIRE(found != possible.end());
      ++found->second;
    }
    for (const auto& [image, times] : possible) CHECK(times > 20);  // about 50 on average, or more
  }
}

TEST_CASE("cutting does not alter how an image is cropped and flipped") {
  for (std::int64_t sample = 1; sample < 50; ++sample) {
    const Image whole = augmented({.crop_padding = 1, .flip = true}, sample);
    const Image cut = augmented({.crop_padding = 1, .flip = true, .cutout = 1}, sample);
    int zeros = 0;
    for (std::size_t i = 0; i < cut.size(); ++i) {
      zeros += cut[i] == 0;
      CHECK((cut[i] == whole[i] || cut[i] == 0));
    }
    CHECK(zeros == 2);  // one for each of two channels
  }
}

TEST_CASE("seed, epoch and sample each decide what happens to an image") {
  const AugmentationOptions options{.crop_padding = 4, .flip = true};
  CHECK(augmented(options, 3, 1, 2) == augmented(options, 3, 1, 2));
  const auto differs = [&](const auto& other) {
    int count = 0;
    for (std::int64_t sample = 0; sample < 50; ++sample) count += other(sample) != augmented(options, sample, 1, 2);
    return count;
  };
  CHECK(differs([&](std::int64_t sample) { return augmented(options, sample, 2, 2); }) > 20);
  CHECK(differs([&](std::int64_t sample) { return augmented(options, sample, 1, 3); }) > 20);
  std::set<Image> places;  // only of black
  for (std::int64_t sample = 0; sample < 50; ++sample) {
    Image image = augmented(options, sample, 1, 2);
    for (float& value : image) value = value < 0 ? 1.0F : 0.0F;
    places.insert(image);
  }
  CHECK(places.size() > 10);
}

TEST_CASE("augmented and mixed images are the same at any number of ranks, loader threads and batch size") {
  const auto check = [](const Dataset& set) {
    const auto one = epoch_of(set, 1, 0, 16);
    REQUIRE(std::ssize(one) == set.size());
    for (const int world_size : {1, 2, 3})
      for (const int workers : {0, 1, 4})
        for (const std::int64_t batch_size : {16, 5}) {
          INFO(world_size << " ranks, " << workers << " threads, batch size " << batch_size);
          CHECK(epoch_of(set, world_size, workers, batch_size) == one);
        }
  };
  check(PatternsDataset({.size = 100}));
  check(DigitsDataset({.size = 100}));
}

TEST_CASE("black is what a black pixel became by normalization") {
  const DigitsDataset set({.size = 40, .normalization = {0.5F, 0.25F}});
  Batch batch = make_batch(set, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19});
  Augmentation({.crop_padding = 40}, set.layout()).apply(batch, 0);
  const Image all = image_of(batch);
  CHECK(*std::min_element(all.begin(), all.end()) == -2);
}

TEST_CASE("samples that are no images cannot be augmented") {
  CHECK_THROWS_WITH(Augmentation({.flip = true}, {.input_shape = {16, 2}}),
                    "images can be cropped, flipped and cut, samples of shape 16x2 cannot");
  CHECK_THROWS_AS(Augmentation({.flip = true}, {.input_shape = {1, 2, 2}, .input_dtype = DType::int64}), Error);
}
