#include "worker/tensor/shape_only.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "common/address_space.h"
#include "common/error.h"

namespace ddprun {
namespace {

// Blocks of reserved addresses. Freed ones are given out again: pages that were written stay few.
class Blocks : public std::enable_shared_from_this<Blocks> {
 public:
  std::shared_ptr<void> take(std::size_t bytes) {
    std::byte* const block = take_freed(bytes);
    return {block != nullptr ? block : take_new(bytes),
            [all = shared_from_this(), bytes](std::byte* freed) { all->freed_[bytes].push_back(freed); }};
  }

 private:
  static constexpr std::size_t most_of_region = std::size_t{64} << 30, least_of_region = std::size_t{64} << 20;

  // Reserves less where the addresses of the process are limited.
  void add_region(std::size_t bytes) {
    for (std::size_t size = std::max(bytes, most_of_region);; size = std::max({bytes, least_of_region, size / 16})) {
      try {
        regions_.push_back(reserve_address_space(size));
        next_ = regions_.back().get();
        left_ = size;
        return;
      } catch (const Error&) {
        if (size <= std::max(bytes, least_of_region)) throw;
      }
    }
  }

  std::byte* take_freed(std::size_t bytes) {
    const auto found = freed_.find(bytes);
    if (found == freed_.end() || found->second.empty()) return nullptr;
    std::byte* const block = found->second.back();
    found->second.pop_back();
    return block;
  }

  std::byte* take_new(std::size_t bytes) {
    if (bytes > left_) add_region(bytes);
    left_ -= bytes;
    return std::exchange(next_, next_ + bytes);
  }

  std::vector<std::shared_ptr<std::byte>> regions_;
  std::byte* next_ = nullptr;  // the first address that was not given out, of the last region
  std::size_t left_ = 0;
  std::map<std::size_t, std::vector<std::byte*>> freed_;  // by size
};

thread_local bool in_scope = false;           // every operation asks for it: it needs no constructor
thread_local std::shared_ptr<Blocks> blocks;  // kept for the next scope, with the pages of small tensors
thread_local double operations = 0;

}  // namespace

ShapeOnlyScope::ShapeOnlyScope() {
  if (!blocks) blocks = std::make_shared<Blocks>();
  operations = 0;
  in_scope = true;
}
ShapeOnlyScope::~ShapeOnlyScope() {
  in_scope = false;
}

bool shapes_only() {
  return in_scope;
}

double operations_left_out() {
  return operations;
}
void add_operations_left_out(double count) {
  operations += count;
}

std::shared_ptr<void> reserve_block(std::size_t bytes) {
  return blocks->take(bytes);
}

}  // namespace ddprun
