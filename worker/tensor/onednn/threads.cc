#include "worker/tensor/onednn/threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>
#include <vector>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

// Each compiler has an omp.h for its own runtime; the distributions' oneDNN has GNU's, whose threads are used here too:
// a second set of threads would compete with them for the processors.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int count);
void GOMP_parallel(void (*function)(void*), void* data, unsigned threads, unsigned flags);
}

namespace ddprun::onednn {
namespace {

// Each thread has a number of its own; this is the one of the main thread before any code changed it. It is atomic,
// since computations on other threads read it.
std::atomic<int> threads_at_start = omp_get_max_threads();

thread_local bool sums_are_divided = false;

// Parts that the threads of a team take one after the other.
class Parts {
 public:
  Parts(int count, const std::function<void(int)>& part)
      : count_(count), part_(part), errors_(static_cast<std::size_t>(count)) {}

  void take_all() noexcept {
    const OneThread one;
    for (int i = next_++; i < count_; i = next_++) {
      try {
        part_(i);
      } catch (...) {
        errors_[static_cast<std::size_t>(i)] = std::current_exception();
      }
    }
  }
  void rethrow() const {
    for (const auto& error : errors_)
      if (error) std::rethrow_exception(error);
  }

 private:
  int count_;
  const std::function<void(int)>& part_;
  std::atomic<int> next_ = 0;
  std::vector<std::exception_ptr> errors_;
};

// ThreadSanitizer does not see that a team begins after its caller, which continues after the team: the distribution's
// OpenMP runtime is not instrumented.
void order_before([[maybe_unused]] Parts& parts) {
#ifdef __SANITIZE_THREAD__
  __tsan_release(&parts);
#endif
}
void order_after([[maybe_unused]] Parts& parts) {
#ifdef __SANITIZE_THREAD__
  __tsan_acquire(&parts);
#endif
}

void take_part_in_team(void* data) {
  auto& parts = *static_cast<Parts*>(data);
  order_after(parts);
  parts.take_all();
  order_before(parts);
}

}  // namespace

int threads() {
  return omp_get_max_threads();
}

void set_threads(int count) {
  omp_set_num_threads(count);
}

void begin_with_threads(int count) {
  omp_set_num_threads(count);
  threads_at_start.store(count, std::memory_order_relaxed);
}

bool has_several_threads() {
  return threads_at_start.load(std::memory_order_relaxed) > 1;
}

bool divides_sums() {
  return sums_are_divided || has_several_threads();
}

DividedSums::DividedSums() : before_(std::exchange(sums_are_divided, true)) {}

DividedSums::~DividedSums() {
  sums_are_divided = before_;
}

void run_parts(int count, const std::function<void(int)>& part) {
  Parts parts(count, part);
  const int team = std::min(count, threads());
  if (team > 1) {
    order_before(parts);
    GOMP_parallel(take_part_in_team, &parts, static_cast<unsigned>(team), 0);
    order_after(parts);
  } else {
    parts.take_all();
  }
  parts.rethrow();
}

}  // namespace ddprun::onednn
