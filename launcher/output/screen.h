#pragma once

#include <map>
#include <string>
#include <string_view>

namespace ddprun {

struct WindowSize {
  int columns = 80;
  int rows = 24;
  friend bool operator==(const WindowSize&, const WindowSize&) = default;
};

// Computes what to write to a terminal that several workers share. Whole lines scroll; the progress bars (lines that
// are still being redrawn) are drawn below the last line, one per row, ordered by source. New lines are inserted above
// the bars. Uses only sequences that every current terminal supports: carriage return, cursor up (CUU), erase to the
// end of the line (EL) and of the screen (ED).
//
// No I/O: takes text, returns bytes for the terminal. Not thread-safe, never fails. Sizes are columns and rows.
class Screen {
 public:
  // From now on bars that do not fit are cut or left out.
  void resize(WindowSize size);

  // lines are whole lines, or empty. bars: the rows that replace this source's, separated by '\n', or empty.
  std::string update(int source, std::string_view lines, std::string bars);
  // Writes other text unchanged; a newline is added where bars follow and the text does not end with one.
  std::string write(std::string_view text);

 private:
  std::string to_first_row() const;
  std::string rows(bool erase_behind);

  WindowSize size_;
  std::map<int, std::string> bars_;
  int drawn_ = 0;  // rows of bars on the terminal; the cursor is at the end of the last one
  bool resized_ = false;
};

}  // namespace ddprun
