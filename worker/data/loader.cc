#include "worker/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <sched.h>
#include <thread>
#include <utility>

namespace ddprun::data {
namespace {

BatchList equal_batches(std::vector<std::int64_t> indices, std::int64_t batch_size) {
  BatchList list{.indices = std::move(indices), .ends = {}};
  const auto count = std::ssize(list.indices);
  for (std::int64_t begin = 0; begin < count; begin += batch_size)
    list.ends.push_back(begin + std::min(batch_size, count - begin));
  return list;
}

// A worker that is woken does not take the processor from the thread that wakes it, which goes on with its step.
void yield_to_waker() {
  const sched_param none{};
  ::sched_setscheduler(0, SCHED_BATCH, &none);
}

}  // namespace

class Loader::Impl {
 public:
  Impl(const Dataset& dataset, BatchList list, LoaderOptions options)
      : dataset_(dataset), list_(std::move(list)), options_(options) {
    options_.prefetch = std::max(options_.prefetch, 1);
    for (int i = 0; i < options_.workers; ++i) threads_.emplace_back([this] { work(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    may_claim_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  std::int64_t batches() const { return std::ssize(list_.ends); }

  std::optional<Batch> next() {
    if (delivered_ == batches()) return std::nullopt;
    std::unique_lock lock(mutex_);
    if (claimed_ == delivered_) make_next(lock);  // on a busy machine a worker may wait longer for a processor
    is_ready_.wait(lock, [&] { return ready_.contains(delivered_); });
    auto& result = ready_.at(delivered_);
    if (result.failure) std::rethrow_exception(result.failure);
    auto batch = std::move(result.batch);
    ready_.erase(delivered_++);
    may_claim_.notify_one();
    return batch;
  }

 private:
  struct Result {
    Batch batch;
    std::exception_ptr failure;
  };

  Batch make(std::int64_t number) const {
    const auto at = static_cast<std::size_t>(number);
    const auto begin = at == 0 ? 0 : list_.ends[at - 1];
    const auto first = list_.indices.begin();
    Batch batch = make_batch(dataset_, std::vector(first + begin, first + list_.ends[at]), options_.epoch);
    if (options_.augmentation) options_.augmentation->apply(batch, options_.seed);
    if (options_.mixup) options_.mixup->apply(batch, dataset_, options_.augmentation, options_.seed);
    return batch;
  }

  Result attempt(std::int64_t number) const {
    try {
      return {make(number), nullptr};
    } catch (...) {
      return {{}, std::current_exception()};
    }
  }

  void work() {
    yield_to_waker();
    std::unique_lock lock(mutex_);
    while (true) {
      may_claim_.wait(lock,
                      [&] { return stopping_ || claimed_ == batches() || claimed_ < delivered_ + options_.prefetch; });
      if (stopping_ || claimed_ == batches()) return;
      make_next(lock);
      is_ready_.notify_one();
    }
  }

  // REQUIRES: the lock of mutex_, which is released meanwhile.
  void make_next(std::unique_lock<std::mutex>& lock) {
    const auto number = claimed_++;
    lock.unlock();
    auto result = attempt(number);
    lock.lock();
    ready_.emplace(number, std::move(result));
  }

  const Dataset& dataset_;
  const BatchList list_;
  LoaderOptions options_;

  std::mutex mutex_;
  std::condition_variable may_claim_;  // a worker may take the next batch, or stop
  std::condition_variable is_ready_;   // the consumer's batch may be there
  std::map<std::int64_t, Result> ready_;
  std::int64_t claimed_ = 0;
  std::int64_t delivered_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

Loader::Loader(const Dataset& dataset, std::vector<std::int64_t> indices, LoaderOptions options)
    : Loader(dataset, equal_batches(std::move(indices), options.batch_size), options) {}
Loader::Loader(const Dataset& dataset, BatchList batches, LoaderOptions options)
    : impl_(std::make_unique<Impl>(dataset, std::move(batches), options)) {}
Loader::~Loader() = default;
std::int64_t Loader::batches() const {
  return impl_->batches();
}
std::optional<Batch> Loader::next() {
  return impl_->next();
}

}  // namespace ddprun::data
