#pragma once

// Layers, each a thin module around an operation. They are initialized like PyTorch's.
#include "worker/nn/layers/activation.h"
#include "worker/nn/layers/attention.h"
#include "worker/nn/layers/container.h"
#include "worker/nn/layers/convolution.h"
#include "worker/nn/layers/dropout.h"
#include "worker/nn/layers/linear.h"
#include "worker/nn/layers/mixture_of_experts.h"
#include "worker/nn/layers/norm.h"
#include "worker/nn/layers/pooling.h"
#include "worker/nn/layers/residual.h"
#include "worker/nn/layers/transformer_encoder.h"
