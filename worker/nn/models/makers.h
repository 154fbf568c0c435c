#pragma once

#include <memory>

#include "worker/nn/models.h"

// The functions behind the table in models.cc. REQUIRES of each: an input as its row says, at least one output.
namespace ddprun::nn {

using Maker = std::unique_ptr<Module>(const ModelOptions&, Generator&);

// Image networks: (batch, channels, height, width) -> (batch, outputs).
Maker make_cnn;
Maker make_cnn_bn;
Maker make_conv_net;
Maker make_sequential_cnn;
Maker make_two_part_resnet;
Maker make_resnet18;
Maker make_resnet50;

// (batch, ...) -> (batch, outputs); the input is flattened.
Maker make_mlp;
Maker make_linear;
Maker make_linear_pair;

// (batch, time, features), or images whose rows are the sequence -> (batch, outputs).
Maker make_transformer;

// int64 tokens (batch, time) -> logits (batch, time, vocabulary).
Maker make_gpt;

}  // namespace ddprun::nn
