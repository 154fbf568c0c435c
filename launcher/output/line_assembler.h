#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddprun {

// Bytes of one stream in, whole lines out, each with the prefix in front, so that lines of several workers never mix. A
// carriage return ends a line too (a progress bar redraws itself), and goes out as it came. A line longer than max_line
// bytes goes out in pieces of that length, each a line of its own.
class LineAssembler {
 public:
  static constexpr std::size_t default_max_line = std::size_t{64} * 1024;

  explicit LineAssembler(std::string prefix, std::size_t max_line = default_max_line)
      : prefix_(std::move(prefix)), max_line_(max_line) {}

  // Appends to out what has become whole.
  void feed(std::string_view bytes, std::string& out);
  // The stream has ended: its last line, if it lacks an end.
  void flush(std::string& out);

 private:
  void emit(std::string_view end, std::string& out);

  std::string prefix_;
  std::size_t max_line_;
  std::string partial_;
  bool carriage_return_ = false;  // the last byte was '\r': whether a '\n' follows is not known yet
};

// The same for a terminal that several workers share: a line that is being redrawn (a carriage return came in it) is a
// bar, for Screen to show. A bar stays one after its newline, in case the cursor comes up again (nested bars); it is a
// whole line once something is written below it that does. Of control sequences only colours are left.
class TerminalLines {
 public:
  explicit TerminalLines(std::string prefix, std::size_t max_line = LineAssembler::default_max_line)
      : prefix_(std::move(prefix)), max_line_(max_line) {}

  // Appends to lines what has become whole.
  void feed(std::string_view bytes, std::string& lines);
  // The rows that may yet be redrawn, prefix in front of each, '\n' between them; those with nothing to see left out.
  std::string bars() const;
  // The stream has ended: its last lines, also without an end.
  void flush(std::string& lines);

 private:
  static constexpr std::size_t max_rows = 16;
  struct Row {
    std::string text;
    bool redrawn = false;
    bool blank() const;
  };

  void escape_byte(char c, std::string& lines);
  void append(std::string_view text, std::string& lines);
  void carriage_return(std::string& lines);
  void newline(std::string& lines);
  void cursor_up(std::size_t count);
  void arrive(bool from_below);
  void commit(std::size_t count, std::string& lines);
  std::string shown(const Row& row) const;

  std::string prefix_;
  std::size_t max_line_;
  std::vector<Row> rows_{1};
  std::size_t at_ = 0;  // the row that the cursor is in
  std::string escape_;  // a control sequence that is not whole yet
  // Since the cursor came to its row:
  bool from_below_ = false;
  bool returned_ = false;  // a carriage return came
  bool at_begin_ = false;  // the next text replaces what stands there
};

// The last bytes of a stream, for the report of a failure.
class Tail {
 public:
  static constexpr std::size_t max_bytes = std::size_t{16} * 1024;
  static constexpr int max_lines = 20;

  void feed(std::string_view bytes);
  // At most max_lines lines, the first one whole; no newline behind the last. Of a redrawn line what was drawn last,
  // and no colours.
  std::string lines() const { return last_lines(bytes_); }
  static std::string last_lines(std::string_view text);

 private:
  std::string bytes_;
};

}  // namespace ddprun
