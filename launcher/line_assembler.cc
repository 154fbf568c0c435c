#include "ddprun/launcher/line_assembler.h"

#include <algorithm>

#include "ddprun/launcher/terminal_text.h"

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
      // A bar that begins with its '\r' has nothing to show yet.
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

void TerminalLines::feed(std::string_view bytes, std::string& lines) {
  while (!bytes.empty()) {
    const auto end = bytes.find_first_of("\r\n");
    const auto room = max_line_ - (at_begin_ ? 0 : partial_.size());
    const auto text = bytes.substr(0, std::min(end, room));
    append(text);
    bytes.remove_prefix(text.size());
    if (bytes.empty()) return;
    if (bytes.front() == '\r') {
      redrawn_ = at_begin_ = true;
      bytes.remove_prefix(1);
      continue;
    }
    emit(lines);
    if (bytes.front() == '\n') bytes.remove_prefix(1);
  }
}

void TerminalLines::append(std::string_view text) {
  if (text.empty()) return;
  if (at_begin_) partial_.clear();
  at_begin_ = false;
  partial_ += text;
}

void TerminalLines::emit(std::string& lines) {
  lines += prefix_;
  lines += one_line_text(partial_);
  lines += '\n';
  partial_.clear();
  redrawn_ = at_begin_ = false;
}

std::string TerminalLines::bar() const {
  if (!redrawn_ || plain_text(partial_).find_first_not_of(" \t") == std::string::npos) return {};
  return prefix_ + one_line_text(partial_);
}

void TerminalLines::flush(std::string& lines) {
  if (plain_text(partial_).find_first_not_of(" \t") != std::string::npos) emit(lines);
  partial_.clear();
}

void Tail::feed(std::string_view bytes) {
  if (bytes.size() >= max_bytes) {
    bytes_.assign(bytes.substr(bytes.size() - max_bytes));
    return;
  }
  bytes_ += bytes;
  if (bytes_.size() > 2 * max_bytes) bytes_.erase(0, bytes_.size() - max_bytes);
}

std::string Tail::last_lines(std::string_view text) {
  const bool cut = text.size() > max_bytes;
  if (cut) text.remove_prefix(text.size() - max_bytes);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  std::size_t begin = text.size();
  for (int lines = 0; lines < max_lines; ++lines) {
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
