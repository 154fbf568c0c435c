#include "worker/parallel/releasable_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "common/error.h"
#include "common/rounding.h"

namespace ddprun {
namespace {

std::size_t page_bytes() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

ReleasableMemory::ReleasableMemory(std::size_t bytes)
    : bytes_(round_up(std::max<std::size_t>(bytes, 1), page_bytes())) {
  void* address = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    throw make_error(Errc::io, "cannot reserve {} bytes of memory: {}", bytes_, std::strerror(errno));
  data_ = static_cast<std::byte*>(address);
}

ReleasableMemory::~ReleasableMemory() {
  ::munmap(data_, bytes_);
}

void ReleasableMemory::release() {
  if (::madvise(data_, bytes_, MADV_DONTNEED) != 0)
    throw make_error(Errc::io, "cannot release {} bytes of memory: {}", bytes_, std::strerror(errno));
}

std::size_t ReleasableMemory::resident_bytes() const {
  std::vector<unsigned char> pages(bytes_ / page_bytes());
  if (::mincore(data_, bytes_, pages.data()) != 0)
    throw make_error(Errc::io, "cannot look at {} bytes of memory: {}", bytes_, std::strerror(errno));
  return page_bytes() *
         static_cast<std::size_t>(std::count_if(pages.begin(), pages.end(), [](auto page) { return (page & 1) != 0; }));
}

}  // namespace ddprun
