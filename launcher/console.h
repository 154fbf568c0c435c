#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace ddprun {

// Standard output and error of the agent, written by a thread of their own, so that a slow or stopped terminal holds up
// nothing but its own lines. Texts go out in the order of write(), each uncut.
//
// The queue is bounded by its writers: while full() they should read no more from the workers, who then block on their
// pipes. write() itself always takes the text. Thread-safe.
class Console {
 public:
  enum class Stream { out, err };
  static constexpr std::size_t high_water_bytes = 1024 * 1024;

  // on_room: called on the console's thread when a full queue has fallen to half. Descriptors are borrowed.
  Console(int out, int err, std::function<void()> on_room);
  // What is still queued is dropped; see drain().
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void write(Stream stream, std::string text);
  bool full() const;
  // Waits until all is written; gives up when nothing has moved for the given time. True when all is written.
  bool drain(std::chrono::milliseconds without_progress);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
