// The readers of image, picture, number and token files with arbitrary bytes: content that they accept must have the
// form that they promise, and content that they refuse gives an error that names the file.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/error.h"
#include "worker/data/cifar.h"
#include "worker/data/idx.h"
#include "worker/data/numbers.h"
#include "worker/data/picture.h"
#include "worker/data/tokens.h"
#include "tests/fuzz/memory_file.h"

using namespace ddprun;
using namespace ddprun::fuzz;

namespace {

void read_cifar(std::span<const std::uint8_t> bytes) {
  data::CifarRecords records;
  data::append_cifar_records(std::as_bytes(bytes), "fuzz", records);
  require(records.levels.size() == records.labels.size() * data::cifar_levels);
  require(bytes.size() == records.levels.size() + records.labels.size());
  for (const int label : records.labels) require(label < data::cifar_classes);
}

void read_idx(std::span<const std::uint8_t> bytes, int dimensions) {
  const MemoryFile file(bytes);
  const auto array = data::read_idx(file.path(), {.dimensions = dimensions, .max_bytes = 1 << 20});
  require(std::ssize(array.shape) == dimensions);
  std::int64_t count = 1;
  for (const auto extent : array.shape) count *= extent;
  require(count == std::ssize(array.values));
}

void read_csv(std::span<const std::uint8_t> bytes) {
  const MemoryFile file(bytes);
  const auto set = data::load_csv(file.path(), {.input_shape = {2}});
  require(set->size() > 0);
  std::vector<float> input(2);
  std::int64_t target = 0;
  for (std::int64_t i = 0; i < set->size(); ++i)
    set->read(i, std::as_writable_bytes(std::span(input)), std::as_writable_bytes(std::span(&target, 1)));
}

void read_picture(std::span<const std::uint8_t> bytes) {
  const auto picture = data::decode_picture(std::as_bytes(bytes), "fuzz");
  require(std::ssize(picture.levels) == 3 * picture.height * picture.width);
  require(data::resize_and_crop(picture, 5).levels.size() == 75);
}

void read_tokens(std::span<const std::uint8_t> bytes) {
  constexpr std::int64_t context = 4, vocabulary = 1000;
  const data::TokenDataset set({{.bytes = std::as_bytes(bytes), .owner = nullptr}},
                               {.context = context, .vocabulary = vocabulary, .token_bytes = 2, .keep_rest = true});
  std::array<std::int64_t, context> input{}, target{};
  for (std::int64_t i = 0; i < set.size(); ++i) {
    set.read(i, std::as_writable_bytes(std::span(input)), std::as_writable_bytes(std::span(target)));
    for (const auto token : input) require(token >= 0 && token < vocabulary);
  }
}

}  // namespace

// The first byte selects the reader.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::span bytes(data + 1, size - 1);
  try {
    switch (data[0] % 6) {
      case 0:
        read_cifar(bytes);
        break;
      case 1:
        read_idx(bytes, 1);
        break;
      case 2:
        read_idx(bytes, 3);
        break;
      case 3:
        read_csv(bytes);
        break;
      case 4:
        read_picture(bytes);
        break;
      default:
        read_tokens(bytes);
    }
  } catch (const Error& e) {
    require(std::string_view(e.what()).size() > 10);
  }
  return 0;
}
