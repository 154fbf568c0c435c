#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace ddprun::capi {

// The work that is left once an operation on tensors has ended: the memory that it used, and the functions that bring
// its results from there to the caller's.
//
// Threads: run() is thread-safe; it returns once the functions have run, at whichever call.
class Epilogue {
 public:
  // Returns memory that lives as long as this object.
  void* allocate(std::size_t bytes) {
    return memory_.emplace_back(std::make_unique_for_overwrite<std::byte[]>(bytes)).get();
  }
  void then(std::function<void()> function) { functions_.push_back(std::move(function)); }
  void run() {
    std::call_once(once_, [this] {
      for (const auto& function : functions_) function();
    });
  }

 private:
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::vector<std::function<void()>> functions_;
  std::once_flag once_;
};

}  // namespace ddprun::capi
