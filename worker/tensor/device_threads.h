#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace ddprun {

// A thread for each of several devices, which live as long as this object. Each computes with its share of the
// processors that the process may use.
//
// Threads: one caller at a time; a function that it runs may not call it.
class DeviceThreads {
 public:
  explicit DeviceThreads(std::size_t devices);
  ~DeviceThreads();
  DeviceThreads(const DeviceThreads&) = delete;
  DeviceThreads& operator=(const DeviceThreads&) = delete;

  // Calls function(0), function(1), ... each on the thread of its device, and returns when all have returned. Rethrows
  // what the first of them, by number, has thrown.
  void run(const std::function<void(std::size_t device)>& function);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
