#include "common/address_space.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>

#include "common/error.h"

namespace ddprun {

std::shared_ptr<std::byte> reserve_address_space(std::size_t bytes) {
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  void* const address =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    throw make_error(Errc::io, "cannot reserve {} bytes of address space: {}", size, std::strerror(errno));
  return {static_cast<std::byte*>(address), [size](std::byte* begin) { ::munmap(begin, size); }};
}

}  // namespace ddprun
