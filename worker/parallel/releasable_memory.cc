#include "worker/parallel/releasable_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "common/address_space.h"
#include "common/error.h"
#include "common/rounding.h"
#include "worker/tensor/shape_only.h"

namespace ddprun {
namespace {

std::size_t page_bytes() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

ReleasableMemory::ReleasableMemory(std::size_t bytes)
    : bytes_(round_up(std::max<std::size_t>(bytes, 1), page_bytes())),
      has_pages_(!shapes_only()),
      memory_(has_pages_ ? reserve_address_space(bytes_) : reserve_block(bytes_)) {}

void ReleasableMemory::release() {
  if (has_pages_ && ::madvise(data(), bytes_, MADV_DONTNEED) != 0)
    throw make_error(Errc::io, "cannot release {} bytes of memory: {}", bytes_, std::strerror(errno));
}

std::size_t ReleasableMemory::resident_bytes() const {
  std::vector<unsigned char> pages(bytes_ / page_bytes());
  if (::mincore(data(), bytes_, pages.data()) != 0)
    throw make_error(Errc::io, "cannot look at {} bytes of memory: {}", bytes_, std::strerror(errno));
  return page_bytes() *
         static_cast<std::size_t>(std::count_if(pages.begin(), pages.end(), [](auto page) { return (page & 1) != 0; }));
}

}  // namespace ddprun
