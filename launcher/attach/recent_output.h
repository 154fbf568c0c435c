#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/output/console.h"

namespace ddprun {

// A part of one worker's output, as the worker wrote it.
struct OutputPiece {
  Console::Stream stream = Console::Stream::out;
  std::string bytes;
};

// The end of each worker's output, by its rank in the job, for clients that begin to follow it. Its size is bounded,
// whatever the workers write.
//
// A value, without I/O. Not thread-safe. Sizes are bytes.
class RecentOutput {
 public:
  static constexpr std::size_t max_bytes = std::size_t{16} * 1024;  // bytes of one worker, both streams together

  void feed(int rank, Console::Stream stream, std::string_view bytes);
  // Workers of a new round have been started.
  void begin_round();
  // The workers have ranks that are higher by so much from now on.
  void renumber(int by);
  // The pieces in the order in which this process read them. If earlier output was dropped, they begin a line.
  std::vector<OutputPiece> last(int rank) const;
  // Returns what last() does, of what was fed since begin_round().
  std::vector<OutputPiece> last_of_round(int rank) const;

 private:
  struct Kept {
    std::deque<OutputPiece> pieces;
    std::size_t bytes = 0;
    std::size_t former = 0;      // number of pieces of earlier rounds
    bool complete = true;        // nothing was dropped
    bool round_complete = true;  // nothing of this round was dropped
  };
  static void drop_oldest(Kept& kept);

  std::map<int, Kept> ranks_;
};

}  // namespace ddprun
