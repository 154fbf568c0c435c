#include "launcher/output/line_assembler.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "launcher/output/terminal_text.h"

namespace ddprun {
namespace {

std::string as_shown(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    result += plain_text(after_last_redraw(line));
    text.remove_prefix(line.size());
    if (text.empty()) break;
    result += '\n';
    text.remove_prefix(1);
  }
  return result;
}

}  // namespace

void LineAssembler::emit(std::string_view end, std::string& out) {
  out += prefix_;
  out += partial_;
  out += end;
  partial_.clear();
}

void LineAssembler::feed(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    if (carriage_return_) {
      carriage_return_ = false;
      const bool windows_line = bytes.front() == '\n';
      emit(windows_line ? "\r\n" : "\r", out);
      if (windows_line) {
        bytes.remove_prefix(1);
        continue;
      }
    }
    const auto end = bytes.find_first_of("\r\n");
    const auto room = max_line_ - partial_.size();
    const auto text = bytes.substr(0, std::min(end, room));
    partial_ += text;
    bytes.remove_prefix(text.size());
    if (bytes.empty()) return;
    if (bytes.front() == '\n') {
      emit("\n", out);
      bytes.remove_prefix(1);
    } else if (bytes.front() == '\r') {
      // A progress bar that begins with its '\r' has nothing to show yet.
      carriage_return_ = !partial_.empty();
      bytes.remove_prefix(1);
    } else {
      emit("\n", out);
    }
  }
}

void LineAssembler::flush(std::string& out) {
  carriage_return_ = false;
  if (!partial_.empty()) emit("\n", out);
}

void LineFilter::feed(std::string_view bytes, std::string& out) {
  std::string whole;
  lines_.feed(bytes, whole);
  select(whole, out);
}

void LineFilter::flush(std::string& out) {
  std::string last;
  lines_.flush(last);
  select(last, out);
}

void LineFilter::select(std::string_view lines, std::string& out) const {
  while (!lines.empty()) {
    const auto end = lines.find_first_of("\r\n");
    auto length = end == std::string_view::npos ? lines.size() : end + 1;
    if (length < lines.size() && lines[length - 1] == '\r' && lines[length] == '\n') ++length;
    const auto line = lines.substr(0, length);
    lines.remove_prefix(length);
    const bool wanted = std::any_of(texts_.begin(), texts_.end(),
                                    [&](const auto& text) { return line.find(text) != std::string_view::npos; });
    if (wanted) out += prefix_ + std::string(line);
  }
}

bool TerminalLines::ScreenRow::blank() const {
  return plain_text(text).find_first_not_of(" \t") == std::string::npos;
}

void TerminalLines::feed(std::string_view bytes, std::string& lines) {
  while (!bytes.empty()) {
    std::size_t taken = 1;
    const char c = bytes.front();
    if (!escape_.empty() || c == '\x1b') {
      escape_byte(c, lines);
    } else if (c == '\r') {
      carriage_return(lines);
    } else if (c == '\n') {
      newline(lines);
    } else {
      if (at_begin_ || rows_[at_].text.size() >= max_line_) append({}, lines);
      const auto room = max_line_ - rows_[at_].text.size();
      taken = std::min({bytes.find_first_of("\r\n\x1b"), room, bytes.size()});
      append(bytes.substr(0, taken), lines);
    }
    bytes.remove_prefix(taken);
  }
}

// "Cursor up" (CUU) alone among the sequences "ESC [ parameters final" has an effect; others are kept as text.
void TerminalLines::escape_byte(char c, std::string& lines) {
  escape_ += c;
  if (escape_.size() == 1 || (escape_.size() == 2 && c == '[')) return;
  const bool sequence = escape_[1] == '[';
  if (sequence && (c < 0x40 || c == 0x7f) && escape_.size() < 32) return;
  const auto whole = std::exchange(escape_, {});
  if (sequence && c == 'A') return cursor_up(static_cast<std::size_t>(std::max(1, std::atoi(whole.c_str() + 2))));
  append(whole, lines);
}

// A nested bar returns the cursor before it writes. Text that reaches a row by nothing but a newline, or after the
// cursor moved up, belongs to no nested bar, so the rows above are final.
void TerminalLines::append(std::string_view text, std::string& lines) {
  if (rows_[at_].text.size() >= max_line_ && !at_begin_) {
    commit(at_ + 1, lines);
    if (rows_.empty()) rows_.emplace_back();
    at_ = 0;
  }
  if (!returned_ || from_below_) commit(at_, lines);
  from_below_ = false;
  if (at_begin_) rows_[at_] = {.text = {}, .redrawn = returned_};
  at_begin_ = false;
  rows_[at_].text += text;
}

// A row that is drawn a second time, without the cursor having been above it in between, makes the rows above final.
void TerminalLines::carriage_return(std::string& lines) {
  if (from_below_ || (!at_begin_ && !rows_[at_].blank())) commit(at_, lines);
  from_below_ = false;
  rows_[at_].redrawn = returned_ = at_begin_ = true;
}

void TerminalLines::newline(std::string& lines) {
  const bool last = at_ + 1 == rows_.size();
  if (last && at_ == 0 && !rows_[0].redrawn) {
    commit(1, lines);
    rows_.emplace_back();
    return enter_row(false);
  }
  if (last) rows_.emplace_back();
  ++at_;
  if (rows_.size() > max_rows) commit(1, lines);
  enter_row(false);
}

void TerminalLines::cursor_up(std::size_t count) {
  at_ -= std::min(at_, count);
  enter_row(true);
}

void TerminalLines::enter_row(bool from_below) {
  from_below_ = from_below;
  returned_ = false;
  at_begin_ = true;
}

// A bar that was erased leaves no line.
void TerminalLines::commit(std::size_t count, std::string& lines) {
  for (std::size_t i = 0; i < count; ++i)
    if (!rows_[i].redrawn || !rows_[i].blank()) lines += shown(rows_[i]) + '\n';
  rows_.erase(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(count));
  at_ -= std::min(at_, count);
}

std::string TerminalLines::shown(const ScreenRow& row) const {
  auto text = prefix_ + one_line_text(row.text);
  if (row.redrawn) text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::string TerminalLines::bars() const {
  std::string result;
  for (const auto& row : rows_) {
    if (row.blank() || (rows_.size() == 1 && !row.redrawn)) continue;
    if (!result.empty()) result += '\n';
    result += shown(row);
  }
  return result;
}

void TerminalLines::flush(std::string& lines) {
  while (!rows_.empty() && rows_.back().blank()) rows_.pop_back();
  commit(rows_.size(), lines);
  rows_.assign(1, {});
  enter_row(false);
}

void Tail::feed(std::string_view bytes) {
  if (bytes.size() >= max_bytes) {
    bytes_.assign(bytes.substr(bytes.size() - max_bytes));
    return;
  }
  bytes_ += bytes;
  if (bytes_.size() > 2 * max_bytes) bytes_.erase(0, bytes_.size() - max_bytes);
}

std::string Tail::last_lines(std::string_view text, int most) {
  const bool cut = text.size() > max_bytes;
  if (cut) text.remove_prefix(text.size() - max_bytes);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  std::size_t begin = text.size();
  for (int lines = 0; lines < most; ++lines) {
    const auto newline = begin == 0 ? std::string_view::npos : text.rfind('\n', begin - 1);
    if (newline == std::string_view::npos) {
      begin = 0;
      break;
    }
    begin = newline;
  }
  if (begin < text.size() && text[begin] == '\n') ++begin;
  return as_shown(text.substr(begin));
}

}  // namespace ddprun
