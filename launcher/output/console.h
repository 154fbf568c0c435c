#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "ddprun/launcher/output/screen.h"

namespace ddprun {

// Standard output and error of the agent, written by a thread of their own, so that a slow or stopped terminal holds up
// nothing but its own lines. Texts go out in the order of write() and update(), each uncut. Where a stream is a
// terminal, bars are drawn below the lines (see Screen); streams that are the same terminal share them.
//
// The queue is bounded by its writers: while full() they should read no more from the workers, who then block on their
// pipes. write() itself always takes the text. Thread-safe.
class Console {
 public:
  enum class Stream { out, err };
  static constexpr std::size_t high_water_bytes = std::size_t{1024} * 1024;

  // on_room: called on the console's thread when a full queue has fallen to half. Descriptors are borrowed.
  // plain: a terminal is treated as a file, being one that cannot move its cursor.
  Console(int out, int err, std::function<void()> on_room, bool plain = false);
  // What is still queued is dropped; see drain().
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void write(Stream stream, std::string text);
  // The lines, and the bars that this source, any number, has from now on (Screen::update); without a terminal the
  // lines alone.
  void update(Stream stream, int source, std::string lines, std::string bars);
  // The size of the stream's terminal now; nothing when it is none.
  std::optional<WindowSize> window(Stream stream) const;
  bool full() const;
  // Waits until all is written; gives up when nothing has moved for the given time. True when all is written.
  bool drain(std::chrono::milliseconds without_progress);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
