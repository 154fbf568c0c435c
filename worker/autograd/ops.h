#pragma once

// All differentiable operations.
#include "ddprun/worker/autograd/autocast.h"
#include "ddprun/worker/autograd/ops/activation.h"
#include "ddprun/worker/autograd/ops/attention.h"
#include "ddprun/worker/autograd/ops/conv.h"
#include "ddprun/worker/autograd/ops/elementwise.h"
#include "ddprun/worker/autograd/ops/indexing.h"
#include "ddprun/worker/autograd/ops/loss.h"
#include "ddprun/worker/autograd/ops/matmul.h"
#include "ddprun/worker/autograd/ops/norm.h"
#include "ddprun/worker/autograd/ops/output_loss.h"
#include "ddprun/worker/autograd/ops/quantization.h"
#include "ddprun/worker/autograd/ops/reduce.h"
#include "ddprun/worker/autograd/ops/residual.h"
#include "ddprun/worker/autograd/ops/shape.h"
