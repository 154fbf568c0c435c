#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun::cuda {

// The names of the operations that a device was given last: one of them is at fault when a kernel has failed.
//
// Threads: thread-safe.
class RecentOperations {
 public:
  // The name must live as long as the program.
  void add(const std::string_view& name) {
    names_[count_.fetch_add(1, std::memory_order_relaxed) % names_.size()].store(&name, std::memory_order_relaxed);
  }
  // Returns a text such as "matmul, softmax, sum", the last one at the end; empty if there are none so far.
  std::string text() const;

 private:
  std::array<std::atomic<const std::string_view*>, 8> names_{};
  std::atomic<std::size_t> count_ = 0;
};

// Returns the name of an entry of DeviceApi, such as "fill".
template <auto function>
constexpr std::string_view name_of_operation() {
  std::string_view text = __PRETTY_FUNCTION__;  // "... [with auto function = ddprun::cuda::fill; ...]"
  text.remove_prefix(text.find("function = ") + std::string_view("function = ").size());
  text = text.substr(0, text.find_first_of(";]"));
  return text.substr(text.rfind(':') + 1);
}
template <auto function>
inline constexpr std::string_view operation_name = name_of_operation<function>();

}  // namespace ddprun::cuda
