#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "worker/nn/module.h"
#include "worker/tensor/random.h"

namespace ddprun::nn {

// Sizes of gpt and transformer; 0 means the preset's.
struct GptOptions {
  std::string preset = "nano";  // one of gpt_presets()
  std::int64_t layers = 0;
  std::int64_t heads = 0;       // width is a multiple of it
  std::int64_t width = 0;       // features of a token
  std::int64_t context = 0;     // the most tokens that it sees
  std::int64_t vocabulary = 0;  // if 0 in a preset without one: ModelOptions::outputs
  bool bias = true;             // in linear layers and normalizations
};

// Options of transformer; its other sizes are those of GptOptions, with its presets.
struct EncoderOptions {
  std::int64_t feedforward = 0;     // features between the two linear layers of a layer; 0 means 4 x width
  std::string activation = "gelu";  // the function between them: one of transformer_activations()
  bool norm_first = true;           // normalization before attention and linear layers, not after
};

// Options of gpt whose MLPs are mixtures of experts (MixtureOfExpertsOptions).
struct ExpertOptions {
  std::int64_t experts = 0;  // the number of a block's experts; 0: the MLP is an ordinary one
  std::int64_t per_token = 2;
  std::int64_t every = 1;  // the last of so many blocks has experts
  double capacity_factor = 0;
  double load_balancing_loss = 0.01;
  double router_z_loss = 0;
};

struct ModelOptions {
  Shape input{1, 28, 28};  // the shape of one sample, without the batch
  DType input_dtype = DType::float32;
  std::int64_t outputs = 10;                   // classes, tokens, or values of a regression
  std::vector<std::int64_t> hidden{128, 128};  // mlp: sizes of the hidden layers
  double dropout = 0;          // mlp: after each hidden layer; gpt, transformer: where GPT-2 and PyTorch have it
  std::string stem = "cifar";  // resnet18, resnet50: one of resnet_stems()
  std::int64_t channels = 64;  // resnet18, resnet50: those of the first layer
  GptOptions gpt;
  EncoderOptions encoder;
  ExpertOptions experts;
};

// Builds the model by name, its parameters drawn from the generator. docs/models.md has a table of the models, the
// headers and sources in models/ have their shapes. Throws Errc::usage for an unknown name (naming the known ones), an
// input that the model cannot take and options that it cannot have.
std::unique_ptr<Module> make_model(std::string_view name, const ModelOptions& options, Generator& generator);

std::vector<std::string_view> model_names();
// Returns the smallest height and width of the images, (channels, height, width), that the model takes; 0 if any.
std::int64_t smallest_image(std::string_view name);

std::vector<std::string_view> resnet_stems();             // "cifar", "imagenet"
std::vector<std::string_view> gpt_presets();              // "nano", "small", "gpt2"
std::vector<std::string_view> transformer_activations();  // "gelu", "relu"
// Returns the options with the preset's sizes instead of zeros. Throws Errc::usage for a preset that does not exist.
GptOptions with_preset(const GptOptions& options);

}  // namespace ddprun::nn
