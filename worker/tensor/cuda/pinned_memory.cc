#include "worker/tensor/cuda/pinned_memory.h"

#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace ddprun::cuda {
namespace {

class PinnedCache {
 public:
  void* take(std::size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      auto& blocks = free_[bytes];
      if (!blocks.empty()) {
        void* const block = blocks.back();
        blocks.pop_back();
        return block;
      }
    }
    void* block = nullptr;
    check(api().allocate_pinned(bytes, &block));
    return block;
  }

  void release(void* block, std::size_t bytes) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      free_[bytes].push_back(block);
    } catch (const std::bad_alloc&) {
      api().release_pinned(block);
    }
  }

 private:
  std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;
};

// The cache is never destroyed: tensors in static objects may outlive it otherwise.
PinnedCache& cache() {
  static auto* instance = new PinnedCache;
  return *instance;
}

// Memory that devices have still to read.
class Uploads {
 public:
  void add(const CudaDevice& device, std::shared_ptr<void> memory) {
    const std::lock_guard lock(mutex_);
    auto& [under_way, events] = of_[&device];
    while (!under_way.empty() && is_read(under_way.front())) {
      events.push_back(under_way.front().event);
      under_way.pop_front();
    }
    void* event = nullptr;
    if (events.empty()) {
      check(device.api().create_event(device.context(), &event));
    } else {
      event = events.back();
      events.pop_back();
    }
    under_way.push_back({event, std::move(memory)});
    check(device.api().record_event(device.context(), Queue::compute, event));
  }

 private:
  struct Upload {
    void* event;
    std::shared_ptr<void> memory;
  };
  struct OfDevice {
    std::deque<Upload> under_way;  // in the order of the queue
    std::vector<void*> events;     // kept to be used again
  };

  static bool is_read(const Upload& upload) {
    bool reached = false;
    check(api().event_reached(upload.event, &reached));
    return reached;
  }

  std::mutex mutex_;
  std::map<const CudaDevice*, OfDevice> of_;
};

Uploads& uploads() {
  static auto* instance = new Uploads;
  return *instance;
}

}  // namespace

std::shared_ptr<void> allocate_pinned(std::size_t bytes) {
  PinnedCache& from = cache();
  return {from.take(bytes), [&from, bytes](void* block) { from.release(block, bytes); }};
}

void copy_from_pinned(const CudaDevice& device, void* to, std::shared_ptr<void> from, std::size_t bytes) {
  check(device.api().copy_bytes(device.context(), Queue::compute, Direction::to_device, to, from.get(), bytes));
  uploads().add(device, std::move(from));
}

}  // namespace ddprun::cuda
