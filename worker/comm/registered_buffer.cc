#include "worker/comm/registered_buffer.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "common/error.h"
#include "common/rounding.h"

namespace ddprun {
namespace {

constexpr std::size_t page = 4096;

}  // namespace

RegisteredBuffer plain_buffer(std::size_t bytes) {
  const auto whole = comm::whole_pages(bytes);
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(page, whole));
  if (!memory) throw make_error(Errc::io, "cannot allocate {} bytes of memory", bytes);
  std::memset(memory, 0, whole);
  return {std::shared_ptr<std::byte>(memory, &std::free), bytes};
}

std::size_t comm::whole_pages(std::size_t bytes) {
  if (bytes > PTRDIFF_MAX) throw make_error(Errc::io, "cannot allocate {} bytes: no memory is that large", bytes);
  return round_up(std::max<std::size_t>(bytes, 1), page);
}

}  // namespace ddprun
