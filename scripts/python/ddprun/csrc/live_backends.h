#pragma once

#include <c10/util/intrusive_ptr.h>
#include <mutex>
#include <utility>
#include <vector>

namespace ddprun_torch {

class Backend;

// The back ends of a process, for the end of the interpreter: a thread that ends an operation may call a function of
// Python's that waits for it, which afterwards would crash. Thread-safe.
class LiveBackends {
 public:
  void add(const c10::intrusive_ptr<Backend>& backend);
  // Closes those that still exist.
  void close();

 private:
  using WeakBackend = c10::weak_intrusive_ptr<Backend>;

  std::mutex mutex_;  // guards backends_
  std::vector<WeakBackend> backends_;
};

}  // namespace ddprun_torch
