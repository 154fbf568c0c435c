#pragma once

// All differentiable operations.
#include "worker/autograd/autocast.h"
#include "worker/autograd/ops/activation.h"
#include "worker/autograd/ops/attention.h"
#include "worker/autograd/ops/conv.h"
#include "worker/autograd/ops/elementwise.h"
#include "worker/autograd/ops/indexing.h"
#include "worker/autograd/ops/loss.h"
#include "worker/autograd/ops/matmul.h"
#include "worker/autograd/ops/norm.h"
#include "worker/autograd/ops/output_loss.h"
#include "worker/autograd/ops/quantization.h"
#include "worker/autograd/ops/reduce.h"
#include "worker/autograd/ops/residual.h"
#include "worker/autograd/ops/shape.h"
