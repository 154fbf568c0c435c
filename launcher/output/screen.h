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

// What to write to a terminal that several workers share. Whole lines scroll up as ever; below the last of them stand
// the bars, each in a row, in the order of their sources: lines that are still being redrawn. A new line goes above the
// bars, so that neither is torn. Only sequences that every terminal of today knows are used: carriage return, cursor up
// (CUU), erase to the end of the line (EL) and of the screen (ED).
//
// No I/O: text in, bytes for the terminal out. Not thread-safe.
class Screen {
 public:
  // Bars that do not fit are cut or left out from now on.
  void resize(WindowSize size);

  // lines: whole lines, or nothing. bars: the rows that this source has from now on, '\n' between them; empty: none.
  std::string update(int source, std::string_view lines, std::string bars);
  // What comes from elsewhere, as it is; above bars it gets an end where it lacks one.
  std::string write(std::string_view text);

 private:
  std::string to_first_row() const;
  std::string rows(bool erase_behind);

  WindowSize size_;
  std::map<int, std::string> bars_;
  int drawn_ = 0;  // rows on the terminal; the cursor is at the end of the last
  bool resized_ = false;
};

}  // namespace ddprun
