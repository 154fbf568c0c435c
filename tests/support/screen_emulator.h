#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::testing {

// Emulates a terminal for the sequences that ddprun writes: carriage return, newline, wrapping, cursor up, erase to the
// end of the line and of the screen. Colours are ignored. It has as many rows as needed.
class ScreenEmulator {
 public:
  explicit ScreenEmulator(std::size_t columns = 80) : columns_(columns) {}

  void feed(std::string_view bytes) {
    unread_ += bytes;
    std::size_t at = 0;
    while (at < unread_.size()) {
      const auto taken = take(std::string_view(unread_).substr(at));
      if (taken == 0) break;
      at += taken;
    }
    unread_.erase(0, at);
  }

  // The rows without trailing spaces, and without empty rows at the end.
  std::vector<std::string> rows() const {
    auto result = rows_;
    for (auto& row : result) row.erase(row.find_last_not_of(' ') + 1);
    while (!result.empty() && result.back().empty()) result.pop_back();
    return result;
  }

 private:
  std::size_t take(std::string_view text) {
    if (text.front() == '\x1b') return control(text);
    if (text.front() == '\r')
      column_ = 0;
    else if (text.front() == '\n')
      next_row();
    else
      put(text.front());
    return 1;
  }

  std::size_t control(std::string_view text) {
    const auto end = text.find_first_not_of("0123456789;", 2);
    if (end == std::string_view::npos) return 0;
    const auto count = static_cast<std::size_t>(std::max(1, std::atoi(std::string(text.substr(2, end - 2)).c_str())));
    if (text[end] == 'A') row_ -= std::min(row_, count);
    if (text[end] == 'K' || text[end] == 'J') row().resize(std::min(row().size(), column_));
    if (text[end] == 'J') rows_.resize(row_ + 1);
    return end + 1;
  }

  // Like a terminal in its usual mode, a newline also moves to the first column.
  void next_row() {
    ++row_;
    column_ = 0;
    row();
  }

  void put(char c) {
    if (column_ == columns_) next_row();
    if (row().size() <= column_) row().resize(column_ + 1, ' ');
    row()[column_++] = c;
  }

  std::string& row() {
    if (rows_.size() <= row_) rows_.resize(row_ + 1);
    return rows_[row_];
  }

  std::size_t columns_;
  std::string unread_;
  std::vector<std::string> rows_;
  std::size_t row_ = 0;
  std::size_t column_ = 0;
};

}  // namespace ddprun::testing
