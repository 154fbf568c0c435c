#include "worker/data/image_folder.h"

#include <cstring>
#include <fstream>
#include <numeric>

#include "common/error.h"
#include "worker/data/loader.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/picture_files.h"

using namespace ddprun;
using namespace ddprun::data;
using namespace ddprun::testing;

namespace {

const std::vector<Normalization> plain(3);

void write(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

// The folder has three classes; the blue of a picture identifies its file.
void write_folder(const TempDir& dir) {
  write(dir / "train/cat/b.JPG", jpeg_bytes(some_picture(30, 20, 10)));
  write(dir / "train/cat/a.png", png_bytes(some_picture(20, 30, 20)));
  write(dir / "train/dog/deep/er.png", png_bytes(some_picture(16, 16, 30)));
  write(dir / "train/dog/notes.txt", "no picture");
  write(dir / "train/ant/x.jpeg", jpeg_bytes(some_picture(16, 40, 40)));
  write(dir / "val/dog/y.png", png_bytes(some_picture(16, 16, 50)));
}

struct Sample {
  std::vector<float> image;
  std::int64_t label = -1;
};
Sample sample(const Dataset& dataset, std::int64_t index) {
  Sample result{.image = std::vector<float>(dataset.layout().input_bytes() / sizeof(float))};
  dataset.read(index, std::as_writable_bytes(std::span(result.image)),
               std::as_writable_bytes(std::span(&result.label, 1)));
  return result;
}

}  // namespace

TEST_CASE("a folder for each class is a data set, with classes and files in the order of their names") {
  const TempDir dir;
  write_folder(dir);
  const auto train = load_image_folder(dir.path(), Split::train, 8, plain);
  REQUIRE(train->size() == 4);
  CHECK(train->layout().classes == 3);
  CHECK(train->layout().input_shape == std::vector<std::int64_t>{3, 8, 8});
  CHECK(image_folder_classes(dir.path()) == std::vector<std::string>{"ant", "cat", "dog"});
  const std::vector<std::pair<int, int>> expected{{0, 40}, {1, 20}, {1, 10}, {2, 30}};  // label, blue
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto [image, label] = sample(*train, static_cast<std::int64_t>(i));
    CHECK(label == expected[i].first);
    CHECK(image[2 * 64 + 20] * 255 == Approx(expected[i].second).margin(4));  // the value in the third plane
  }
  const auto test = load_image_folder(dir.path(), Split::test, 8, imagenet_normalization);
  REQUIRE(test->size() == 1);
  CHECK(sample(*test, 0).label == 2);
  CHECK(sample(*test, 0).image[2 * 64] == Approx((50 / 255.0 - 0.406) / 0.225));
}

TEST_CASE("samples are the same bits with any number of loader threads") {
  const TempDir dir;
  write_folder(dir);
  const auto train = load_image_folder(dir.path(), Split::train, 9, imagenet_normalization);
  const auto bytes = [&](int workers) {
    std::vector<std::int64_t> indices(40);
    for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<std::int64_t>(i * 7 % 4);
    Loader loader(*train, indices, {.batch_size = 3, .workers = workers});
    std::string all;
    while (const auto batch = loader.next())
      all.append(static_cast<const char*>(batch->input().raw()), batch->input().bytes());
    return all;
  };
  const auto alone = bytes(0);
  CHECK(alone.size() == 40 * train->layout().input_bytes());
  CHECK(bytes(1) == alone);
  CHECK(bytes(4) == alone);
}

TEST_CASE("what is wrong with a folder or a file is one line that names it") {
  const TempDir dir;
  const auto load = [&](Split split) { return load_image_folder(dir.path(), split, 8, plain); };
  CHECK_THROWS_WITH(load(Split::train), Catch::StartsWith("cannot read the folder " + (dir / "train").string()));
  std::filesystem::create_directory(dir / "train");
  CHECK_THROWS_WITH(load(Split::train), Catch::Contains("train holds no folder: expected one for each class"));
  write_folder(dir);
  write(dir / "val/cow/z.png", png_bytes(some_picture(4, 4)));
  CHECK_THROWS_WITH(load(Split::test), Catch::Contains("val/cow is no class: there is no"));
  std::filesystem::create_directory(dir / "train/empty");
  CHECK_THROWS_WITH(load(Split::train), Catch::Contains("train/empty holds no file .png, .jpg or .jpeg"));
  std::filesystem::remove(dir / "train/empty");
  write(dir / "train/ant/x.jpeg", "no picture");
  const auto broken = load(Split::train);
  CHECK_THROWS_WITH(sample(*broken, 0),
                    Catch::Equals((dir / "train/ant/x.jpeg").string() + ": neither a PNG nor a JPEG file"));
}
