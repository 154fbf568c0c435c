#pragma once

#include <cstddef>
#include <string>

namespace ddprun {

// "1.25 GiB", "12.0 MiB", "3.5 KiB", "900 bytes"
std::string byte_text(std::size_t bytes);

}  // namespace ddprun
