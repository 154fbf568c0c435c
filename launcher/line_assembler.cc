#include "ddprun/launcher/line_assembler.h"

namespace ddprun {

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
  return std::string(text.substr(begin));
}

}  // namespace ddprun
