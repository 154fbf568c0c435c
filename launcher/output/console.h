#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launcher/output/screen.h"

namespace ddprun {

// The agent's standard output and standard error, written by a separate thread, so that a slow or stopped terminal
// delays nothing but its own lines. Texts are written whole, in the order of write() and update(). Where a stream is a
// terminal, progress bars are drawn below the lines (see Screen); two streams on the same terminal share one screen.
//
// Ownership: borrows its descriptors. The destructor drops what is still queued; call drain() first.
// Threads: thread-safe. The writing thread starts with the first text and receives none of the process's signals.
// Errors: a stream that cannot be written (full disk) does not stop the job: the first error on standard output is
// logged at once, and write_failed() lets the program exit with an error. A reader that is gone is no error. The first
// write() throws std::system_error when the thread cannot be started. Units: bytes. write() always accepts the text;
// the producers bound the queue: while full() they stop reading from the workers, which then block on their pipes.
class Console {
 public:
  enum class Stream { out, err };
  static constexpr std::size_t high_water_bytes = std::size_t{1024} * 1024;

  // on_writable is called on the writing thread when a queue that was full has fallen to half. plain means a terminal
  // that cannot move its cursor; it is written like a file.
  Console(int out, int err, std::function<void()> on_writable, bool plain = false);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void write(Stream stream, std::string text);
  // Writes the lines and replaces the progress bars of this source (see Screen::update). Without a terminal only the
  // lines are written.
  void update(Stream stream, int source, std::string lines, std::string bars);
  // The current size of the stream's terminal; empty when the stream is not a terminal.
  std::optional<WindowSize> window(Stream stream) const;
  // Returns whether the stream is a terminal, also one without the means to redraw lines.
  bool is_terminal(Stream stream) const;
  // Returns whether the stream's reader has closed it, as far as writing to it has shown.
  bool reader_gone(Stream stream) const;
  bool full() const;
  // Waits until everything is written, or until nothing was written for the given time. Returns whether everything was
  // written.
  bool drain(std::chrono::milliseconds without_progress);
  // Returns whether any text could not be written, though the stream has a reader.
  bool write_failed() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
