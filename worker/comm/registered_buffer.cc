#include "ddprun/worker/comm/registered_buffer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace ddprun {

RegisteredBuffer plain_buffer(std::size_t bytes) {
  constexpr std::size_t page = 4096;
  const auto whole = std::max((bytes + page - 1) / page, std::size_t{1}) * page;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(page, whole));
  if (!memory) throw std::bad_alloc();
  std::memset(memory, 0, whole);
  return {std::shared_ptr<std::byte>(memory, &std::free), bytes};
}

}  // namespace ddprun
