#include "worker/tensor/bounded_cache.h"

#include <string>

#include "tests/support/catch.h"

using ddprun::BoundedCache;

TEST_CASE("a cache makes each value once, and never holds more than its capacity") {
  using Cache = BoundedCache<int, std::string>;
  Cache cache;
  int made = 0;
  const auto get = [&](int key) {
    return cache.get(key, [&] {
      ++made;
      return std::to_string(key);
    });
  };
  constexpr int capacity = Cache::capacity;
  for (int pass = 0; pass < 2; ++pass)
    for (int key = 0; key < capacity; ++key) CHECK(get(key) == std::to_string(key));
  CHECK(made == capacity);
  CHECK(get(capacity) == std::to_string(capacity));
  CHECK(get(capacity) == std::to_string(capacity));
  CHECK(made == capacity + 1);
  // The full cache was cleared.
  CHECK(get(0) == "0");
  CHECK(made == capacity + 2);
}
