#include "ddprun/worker/tensor/shape.h"

#include <fmt/format.h>

#include "ddprun/common/error.h"

namespace ddprun {

std::int64_t numel(const Shape& shape) {
  std::int64_t count = 1;
  for (std::int64_t size : shape) {
    if (size < 0) throw make_error(Errc::usage, "a shape has a negative size: {}", to_string(shape));
    count *= size;
  }
  return count;
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace ddprun
