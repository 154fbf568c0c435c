#include "launcher/output/screen.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "launcher/output/terminal_text.h"

namespace ddprun {
namespace {

constexpr std::string_view erase_to_line_end = "\x1b[K";
constexpr std::string_view erase_to_screen_end = "\x1b[J";

std::ptrdiff_t rows_in(const std::string& bars) {
  return 1 + std::count(bars.begin(), bars.end(), '\n');
}

}  // namespace

std::string Screen::to_first_row() const {
  if (drawn_ == 0) return {};
  return drawn_ == 1 ? "\r" : fmt::format("\r\x1b[{}A", drawn_ - 1);
}

// A full row is not erased behind: the cursor is still on its last column.
std::string Screen::rows(bool erase_behind) {
  const auto width = static_cast<std::size_t>(std::max(size_.columns, 1));
  const auto fit = std::max(1, size_.rows - 1);
  std::string text;
  drawn_ = 0;
  for (const auto& [source, bars] : bars_) {
    for (std::size_t begin = 0; begin <= bars.size() && drawn_ < fit; ++drawn_) {
      const auto end = std::min(bars.find('\n', begin), bars.size());
      const auto row = one_line_text(std::string_view(bars).substr(begin, end - begin), width);
      begin = end + 1;
      if (drawn_ > 0) text += '\n';
      text += row;
      if (erase_behind && columns_of(row) < width) text += erase_to_line_end;
    }
  }
  return text;
}

void Screen::resize(WindowSize size) {
  if (size == size_) return;
  size_ = size;
  resized_ = true;
}

std::string Screen::update(int source, std::string_view lines, std::string bars) {
  const auto known = bars_.find(source);
  const auto before = known == bars_.end() ? std::string() : known->second;
  if (lines.empty() && bars == before) return {};
  const bool same_rows = !before.empty() && !bars.empty() && rows_in(before) == rows_in(bars);
  if (bars.empty())
    bars_.erase(source);
  else
    bars_[source] = std::move(bars);
  if (!lines.empty() || !same_rows || resized_) return write(lines);
  // The usual case overwrites the old rows, since erasing them first would flicker.
  auto result = to_first_row();
  return result += rows(true);
}

std::string Screen::write(std::string_view text) {
  auto result = to_first_row();
  if (drawn_ > 0) result += erase_to_screen_end;
  result += text;
  if (!text.empty() && text.back() != '\n' && !bars_.empty()) result += '\n';
  resized_ = false;
  return result += rows(false);
}

}  // namespace ddprun
