#include "worker/tensor/device_threads.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "worker/tensor/onednn/threads.h"

namespace ddprun {

class DeviceThreads::Impl {
 public:
  explicit Impl(std::size_t devices) : failures_(devices) {
    const int share = std::max(1, onednn::threads() / static_cast<int>(devices));
    for (std::size_t device = 0; device < devices; ++device)
      threads_.emplace_back([this, device, share](const std::stop_token& stop) {
        onednn::set_threads(share);
        serve(device, stop);
      });
  }

  void run(const std::function<void(std::size_t)>& function) {
    std::unique_lock lock(mutex_);
    function_ = &function;
    running_ = threads_.size();
    ++round_;
    begin_.notify_all();
    end_.wait(lock, [this] { return running_ == 0; });
    const auto failed = std::ranges::find_if(failures_, [](const auto& failure) { return failure != nullptr; });
    const auto failure = failed == failures_.end() ? nullptr : *failed;
    std::ranges::fill(failures_, nullptr);
    if (failure) std::rethrow_exception(failure);
  }

 private:
  void serve(std::size_t device, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    for (std::uint64_t done = 0; begin_.wait(lock, stop, [&] { return round_ > done; }); done = round_) {
      const auto& function = *function_;
      lock.unlock();
      std::exception_ptr failure;
      try {
        function(device);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      failures_[device] = failure;
      if (--running_ == 0) end_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any begin_, end_;
  const std::function<void(std::size_t)>* function_ = nullptr;
  std::uint64_t round_ = 0;
  std::size_t running_ = 0;
  std::vector<std::exception_ptr> failures_;  // by device
  std::vector<std::jthread> threads_;         // destroyed first
};

DeviceThreads::DeviceThreads(std::size_t devices) : impl_(std::make_unique<Impl>(devices)) {}
DeviceThreads::~DeviceThreads() = default;

void DeviceThreads::run(const std::function<void(std::size_t)>& function) {
  impl_->run(function);
}

}  // namespace ddprun
