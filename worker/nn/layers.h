#pragma once

// Layers, each a thin module around an operation. They are initialized like PyTorch's.
#include "ddprun/worker/nn/layers/activation.h"
#include "ddprun/worker/nn/layers/attention.h"
#include "ddprun/worker/nn/layers/container.h"
#include "ddprun/worker/nn/layers/convolution.h"
#include "ddprun/worker/nn/layers/dropout.h"
#include "ddprun/worker/nn/layers/linear.h"
#include "ddprun/worker/nn/layers/mixture_of_experts.h"
#include "ddprun/worker/nn/layers/norm.h"
#include "ddprun/worker/nn/layers/pooling.h"
#include "ddprun/worker/nn/layers/residual.h"
#include "ddprun/worker/nn/layers/transformer_encoder.h"
