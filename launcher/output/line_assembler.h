#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddprun {

// The four classes of this header turn the bytes of one output stream into lines. They do no I/O, own what they keep,
// never fail and are not thread-safe. Sizes are bytes.

// Splits a stream into whole lines with a prefix before each, so that lines of several workers never mix. A carriage
// return also ends a line (a progress bar redraws itself) and is passed on. A line longer than max_line is split into
// lines of that length.
class LineAssembler {
 public:
  static constexpr std::size_t default_max_line = std::size_t{64} * 1024;

  explicit LineAssembler(std::string prefix, std::size_t max_line = default_max_line)
      : prefix_(std::move(prefix)), max_line_(max_line) {}

  // The prefix of the lines that end from now on.
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }

  // Appends the lines that are now complete to out.
  void feed(std::string_view bytes, std::string& out);
  // Call at the end of the stream: appends the last line if it has no line end.
  void flush(std::string& out);

 private:
  void emit(std::string_view end, std::string& out);

  std::string prefix_;
  std::size_t max_line_;
  std::string partial_;
  bool carriage_return_ = false;  // the last byte was '\r': a '\n' may follow
};

// Keeps the lines of one stream that contain any of the given texts, with a prefix before each. The prefix itself is
// not searched.
class LineFilter {
 public:
  LineFilter(std::vector<std::string> texts, std::string prefix)
      : texts_(std::move(texts)), prefix_(std::move(prefix)), lines_("") {}

  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }

  // Appends the matching lines that are now complete to out.
  void feed(std::string_view bytes, std::string& out);
  // Call at the end of the stream: appends the last line if it matches and has no line end.
  void flush(std::string& out);

 private:
  void select(std::string_view lines, std::string& out) const;

  std::vector<std::string> texts_;
  std::string prefix_;
  LineAssembler lines_;
};

// LineAssembler for a terminal that several workers share. A line that is being redrawn (it contains a carriage return)
// is a progress bar, which Screen shows. A bar remains one after its newline, because the cursor may move up again
// (nested bars); it becomes a whole line once text is written below it by nothing but a newline. Control sequences are
// removed except for colours.
class TerminalLines {
 public:
  explicit TerminalLines(std::string prefix, std::size_t max_line = LineAssembler::default_max_line)
      : prefix_(std::move(prefix)), max_line_(max_line) {}

  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }

  // Appends the lines that are now complete.
  void feed(std::string_view bytes, std::string& lines);
  // The rows that may still be redrawn, each with the prefix, separated by '\n'. Blank rows are left out.
  std::string bars() const;
  // Call at the end of the stream: appends the rows that are left, also one without a line end.
  void flush(std::string& lines);

 private:
  static constexpr std::size_t max_rows = 16;
  struct ScreenRow {
    std::string text;
    bool redrawn = false;
    bool blank() const;
  };

  void escape_byte(char c, std::string& lines);
  void append(std::string_view text, std::string& lines);
  void carriage_return(std::string& lines);
  void newline(std::string& lines);
  void cursor_up(std::size_t count);
  void enter_row(bool from_below);
  void commit(std::size_t count, std::string& lines);
  std::string shown(const ScreenRow& row) const;

  std::string prefix_;
  std::size_t max_line_;
  std::vector<ScreenRow> rows_{1};
  std::size_t at_ = 0;  // the cursor's row
  std::string escape_;  // an incomplete control sequence
  // The events since the cursor entered its row:
  bool from_below_ = false;
  bool returned_ = false;  // there was a carriage return
  bool at_begin_ = false;  // the next text replaces the row
};

// Keeps the last bytes of a stream for a failure report.
class Tail {
 public:
  static constexpr std::size_t max_bytes = std::size_t{16} * 1024;
  static constexpr int max_lines = 20;

  void feed(std::string_view bytes);
  // Returns at most that many lines, the first one complete, without a newline after the last. A redrawn line counts as
  // drawn last; colours are removed.
  std::string lines(int most = max_lines) const { return last_lines(bytes_, most); }
  static std::string last_lines(std::string_view text, int most = max_lines);

 private:
  std::string bytes_;
};

}  // namespace ddprun
