#include "worker/nn/models.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/error.h"
#include "worker/nn/models/makers.h"

namespace ddprun::nn {
namespace {

enum class Takes { numbers, images, tokens };

struct ModelEntry {
  std::string_view name;
  Maker& make;
  Takes takes;
  std::int64_t smallest_image = 0;
};

constexpr ModelEntry rows[] = {
    {"cnn", make_cnn, Takes::images, 16},
    {"cnn_bn", make_cnn_bn, Takes::images, 16},
    {"conv_net", make_conv_net, Takes::images, 16},
    {"sequential_cnn", make_sequential_cnn, Takes::images, 6},
    {"two_part_resnet", make_two_part_resnet, Takes::images, 1},
    {"resnet18", make_resnet18, Takes::images, 1},
    {"resnet50", make_resnet50, Takes::images, 1},
    {"mlp", make_mlp, Takes::numbers},
    {"linear", make_linear, Takes::numbers},
    {"linear_pair", make_linear_pair, Takes::numbers},
    {"transformer", make_transformer, Takes::numbers},
    {"gpt", make_gpt, Takes::tokens},
};

const ModelEntry& row_of(std::string_view name) {
  const auto row = std::find_if(std::begin(rows), std::end(rows), [&](const ModelEntry& r) { return r.name == name; });
  if (row == std::end(rows))
    throw make_error(Errc::usage, "there is no model '{}'; there are: {}", name, fmt::join(model_names(), ", "));
  return *row;
}

void check_image(const ModelEntry& row, const Shape& input) {
  const std::int64_t least = row.smallest_image;
  if (input.size() == 3 && input[0] >= 1 && input[1] >= least && input[2] >= least) return;
  throw make_error(Errc::usage, "model {}: the input has shape {}, not (channels, height, width) of at least {} x {}",
                   row.name, to_string(input), least, least);
}

void check_input(const ModelEntry& row, const ModelOptions& options) {
  const DType expected = row.takes == Takes::tokens ? DType::int64 : DType::float32;
  if (options.input_dtype != expected)
    throw make_error(Errc::usage, "model {}: the input is {}, not {}", row.name, name_of(options.input_dtype),
                     row.takes == Takes::tokens ? "int64 tokens" : "float32");
  if (row.takes == Takes::images) check_image(row, options.input);
}

}  // namespace

std::unique_ptr<Module> make_model(std::string_view name, const ModelOptions& options, Generator& generator) {
  const ModelEntry& row = row_of(name);
  if (options.outputs < 1)
    throw make_error(Errc::usage, "model {}: {} outputs are not possible", name, options.outputs);
  check_input(row, options);
  return row.make(options, generator);
}

std::vector<std::string_view> model_names() {
  std::vector<std::string_view> names;
  for (const ModelEntry& row : rows) names.push_back(row.name);
  return names;
}

std::int64_t smallest_image(std::string_view name) {
  return row_of(name).smallest_image;
}

}  // namespace ddprun::nn
