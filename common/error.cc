#include "common/error.h"

#include <system_error>

#include <fmt/format.h>

namespace ddprun {

Error format_error(Errc code, fmt::string_view format, fmt::format_args arguments) {
  return {code, fmt::vformat(format, arguments)};
}

std::string errno_text(int error_number) {
  return std::generic_category().message(error_number);
}

}  // namespace ddprun
