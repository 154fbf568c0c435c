#pragma once

#include "worker/comm/span.h"

namespace ddprun {

// Converts between float32 and the floating-point type of a span, element by element, rounded to nearest even. to and
// from have as many elements as the span.
void convert(ConstSpan from, float* to);
void convert(const float* from, Span to);

}  // namespace ddprun
