#pragma once

#include <functional>
#include <map>

namespace ddprun::onednn {

// The number of threads with which oneDNN computes what the calling thread asks for. At first there are as many as
// OMP_NUM_THREADS says, or as there are processors.
int threads();
void set_threads(int count);

// Continues as in a process that was started with OMP_NUM_THREADS = count, which OpenMP reads before main() begins: for
// the calling thread, and for the processes that are forked from it. REQUIRES: count >= 1, the process has one thread,
// and nothing has been computed.
void begin_with_threads(int count);

// Returns whether the process began with more than one thread.
bool has_several_threads();

// Returns whether long sums are divided into parts, which threads then compute. How depends only on sizes:
// set_threads() changes the time of an operation, but no bit of its result. One thread need not divide them, and is a
// bit faster then: they are divided where the process began with several threads, and within a DividedSums.
bool divides_sums();

// While one exists, operations of the calling thread have the same bits in every process, whatever the number of
// threads with which it began.
class DividedSums {
 public:
  DividedSums();
  ~DividedSums();
  DividedSums(const DividedSums&) = delete;
  DividedSums& operator=(const DividedSums&) = delete;

 private:
  const bool before_;
};

// The calling thread computes with one thread while the object lives.
class OneThread {
 public:
  OneThread() : before_(threads()) { set_threads(1); }
  ~OneThread() { set_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// Calls part(0), part(1), ... part(count - 1), each once, on as many threads as the calling one computes with; what a
// part asks of oneDNN is computed with one. Returns when all have returned, and rethrows what the first of them, by
// number, has thrown.
void run_parts(int count, const std::function<void(int part)>& part);

// The context that the calling thread keeps for the number of threads that it computes with: a primitive divides its
// work among threads when it is made.
template <class Context>
Context& context_for_threads() {
  thread_local std::map<int, Context> contexts;
  return contexts[threads()];
}

}  // namespace ddprun::onednn
