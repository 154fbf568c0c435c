#include "worker/checkpoint/export.h"

#include <sys/resource.h>

#include "common/atomic_file.h"
#include "common/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::checkpoint;
using ddprun::testing::TempDir;

namespace {

// A model with a tensor that is larger than a piece, and its averages.
struct Model {
  std::vector<float> large = std::vector<float>(3'000'000), small{1, 2, 3}, averages{4, 5, 6};

  Model() {
    for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<float>(i);
  }
  std::vector<TensorView> tensors(const std::vector<float>& of_small) const {
    return {{"large", DType::float32, {3000, 1000}, std::as_bytes(std::span(large))},
            {"empty", DType::float32, {0, 7}, {}},
            {"small", DType::float32, {3}, std::as_bytes(std::span(of_small))}};
  }
  Found saved(const TempDir& dir, bool with_averages) const {
    Content content{.model = tensors(small), .optimizer = {}, .state = {.step = 7}};
    if (with_averages) content.ema = tensors(averages);
    Checkpoints({.folder = dir / "checkpoints"}).save(content);
    return verify_checkpoint(dir / "checkpoints/step_000007");
  }
};

std::vector<float> values_of(const SafetensorsFile& file, const std::string& name) {
  const auto* info = file.find(name);
  REQUIRE(info);
  std::vector<float> values(info->bytes() / sizeof(float));
  file.read(*info, std::as_writable_bytes(std::span(values)));
  return values;
}

}  // namespace

TEST_CASE("an export has the tensors with which the run is evaluated, in one file") {
  TempDir dir;
  const Model model;
  const bool with_averages = GENERATE(false, true);
  const auto saved = model.saved(dir, with_averages).folder / (with_averages ? ema_file : model_file);
  export_model(SafetensorsFile(saved), dir / "model.safetensors");
  const SafetensorsFile file(dir / "model.safetensors");
  REQUIRE(file.tensors().size() == 3);
  CHECK(file.metadata() == Metadata{{"format", "pt"}});
  CHECK(file.find("large")->shape == std::vector<std::int64_t>{3000, 1000});
  CHECK(values_of(file, "large") == model.large);
  CHECK(values_of(file, "small") == (with_averages ? model.averages : model.small));
  CHECK(values_of(file, "empty").empty());
}

TEST_CASE("an export that fails leaves the file of that name as it was, and no other") {
  TempDir dir;
  const auto found = Model().saved(dir, false);
  std::filesystem::create_directory(dir / "exports");
  write_file_atomically(dir / "exports/model", "before");
  const SafetensorsFile model(found.folder / model_file);
  std::filesystem::resize_file(found.folder / model_file, 1'000'000);  // behind the back of the catalogue
  CHECK_THROWS_AS(export_model(model, dir / "exports/model"), Error);
  CHECK(read_whole_file(dir / "exports/model") == "before");
  const std::filesystem::directory_iterator files(dir / "exports");
  CHECK(std::distance(begin(files), end(files)) == 1);
}
