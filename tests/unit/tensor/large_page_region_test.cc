#include "worker/tensor/large_page_region.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "worker/tensor/large_pages.h"
#include "worker/tensor/sanitized.h"
#include "worker/tensor/storage.h"
#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("blocks of a region share large pages until there is no room") {
  LargePageRegion region(2 * large_page);
  CHECK_FALSE(region.contains(&region));
  auto* const first = static_cast<std::byte*>(region.take(large_page / 2));
  auto* const second = static_cast<std::byte*>(region.take(large_page));
  CHECK(reinterpret_cast<std::uintptr_t>(first) % large_page == 0);
  CHECK(second == first + large_page / 2);
  CHECK(region.take(large_page) == nullptr);
  CHECK(region.taken() == 3 * large_page / 2);
  CHECK(region.contains(first));
  CHECK(region.contains(second + large_page - 1));
  CHECK_FALSE(region.contains(first + 2 * large_page));
  std::memset(first, 1, 3 * large_page / 2);
}

#if !defined(DDPRUN_SANITIZED)
TEST_CASE("storage of some large pages and less lies in a region, and its memory is used again") {
  for (const std::size_t eighths : {9, 36}) {  // of a MiB: sizes that nothing else here has
    const std::size_t bytes = eighths << 17;
    const void* block = nullptr;
    {
      const auto first = Storage::allocate(bytes, Device{}), second = Storage::allocate(bytes, Device{});
      CHECK(static_cast<std::byte*>(first->data()) + bytes == second->data());
      block = second->data();
    }
    const auto first = Storage::allocate(bytes, Device{}), second = Storage::allocate(bytes, Device{});
    CHECK((first->data() == block || second->data() == block));
  }
}
#endif
