#include "ddprun/launcher/screen.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

#include "ddprun/launcher/terminal_text.h"

namespace ddprun {
namespace {

constexpr std::string_view erase_line_behind = "\x1b[K";
constexpr std::string_view erase_screen_below = "\x1b[J";

}  // namespace

std::string Screen::to_first_row() const {
  if (drawn_ == 0) return {};
  return drawn_ == 1 ? "\r" : fmt::format("\r\x1b[{}A", drawn_ - 1);
}

// In a row that is full to the last column nothing is erased: the cursor still stands on that column.
std::string Screen::rows(bool erase_behind) {
  const auto width = static_cast<std::size_t>(std::max(size_.columns, 1));
  const auto fit = std::max(1, size_.rows - 1);
  std::string text;
  drawn_ = 0;
  for (const auto& [source, bar] : bars_) {
    if (drawn_ == fit) break;
    const auto row = one_line_text(bar, width);
    if (drawn_++ > 0) text += '\n';
    text += row;
    if (erase_behind && columns_of(row) < width) text += erase_line_behind;
  }
  return text;
}

void Screen::resize(WindowSize size) {
  if (size == size_) return;
  size_ = size;
  resized_ = true;
}

std::string Screen::update(int source, std::string_view lines, std::string bar) {
  const auto known = bars_.find(source);
  const bool had_one = known != bars_.end();
  if (lines.empty() && bar == (had_one ? known->second : "")) return {};
  const bool moves_on = lines.empty() && had_one && !bar.empty();
  if (bar.empty())
    bars_.erase(source);
  else
    bars_[source] = std::move(bar);
  if (!moves_on || resized_) return write(lines);
  // The usual case is written over the old rows: erasing them first would flicker.
  auto result = to_first_row();
  return result += rows(true);
}

std::string Screen::write(std::string_view text) {
  auto result = to_first_row();
  if (drawn_ > 0) result += erase_screen_below;
  result += text;
  if (!text.empty() && text.back() != '\n' && !bars_.empty()) result += '\n';
  resized_ = false;
  return result += rows(false);
}

}  // namespace ddprun
