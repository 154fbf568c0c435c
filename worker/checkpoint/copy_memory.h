#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <thread>

namespace ddprun::checkpoint {

// Memory for one snapshot after the other. It is kept, since most of the time of a first copy goes to page faults.
//
// Threads: one at a time. Errors: Errc::io if the system has no addresses for so much, or refuses a thread.
class CopyMemory {
 public:
  CopyMemory() = default;
  ~CopyMemory();
  CopyMemory(const CopyMemory&) = delete;
  CopyMemory& operator=(const CopyMemory&) = delete;

  // Lets a thread take the pages of so many bytes from now on, before a snapshot needs them. A snapshot may use them
  // meanwhile. Its priority is the caller's: with a low one it may not be done by then on a busy machine. On a system
  // that cannot do that (Linux before 5.14) the snapshot takes the pages.
  void prepare(std::size_t bytes);
  // Returns at least so many bytes; what it returned before may be gone.
  std::byte* reserve(std::size_t bytes);
  // Waits until the pages are taken. For tests.
  void await_pages();

 private:
  void stop();

  std::shared_ptr<std::byte> memory_;
  std::size_t bytes_ = 0;
  std::atomic<bool> stops_ = false;  // asks taker_ to end
  std::thread taker_;                // takes pages
};

}  // namespace ddprun::checkpoint
