#include "worker/checkpoint/copy_memory.h"

#include <algorithm>
#include <sys/mman.h>

#include "common/address_space.h"
#include "worker/checkpoint/helper_thread.h"

namespace ddprun::checkpoint {
namespace {

constexpr std::size_t large_page = std::size_t{2} << 20;

}  // namespace

CopyMemory::~CopyMemory() {
  stop();
}

std::byte* CopyMemory::reserve(std::size_t bytes) {
  if (bytes > bytes_) {
    stop();
    memory_.reset();
    memory_ = reserve_address_space(bytes);
    bytes_ = bytes;
    // One page fault for 2 MiB in place of 512. Where there are no large pages, small ones do.
    ::madvise(memory_.get(), bytes, MADV_HUGEPAGE);
  }
  return memory_.get();
}

void CopyMemory::prepare(std::size_t bytes) {
  std::byte* const begin = reserve(bytes);
  stop();
  taker_ = start_helper_thread("takes memory for checkpoints", [this, begin, bytes] {
    for (std::size_t i = 0; i < bytes && !stops_; i += large_page)
      if (::madvise(begin + i, std::min(large_page, bytes - i), MADV_POPULATE_WRITE) != 0) return;
  });
}

void CopyMemory::await_pages() {
  if (taker_.joinable()) taker_.join();
}

void CopyMemory::stop() {
  stops_ = true;
  await_pages();
  stops_ = false;
}

}  // namespace ddprun::checkpoint
