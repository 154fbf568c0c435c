#include "launcher/output/terminal_text.h"

namespace ddprun {
namespace {

constexpr char escape = '\x1b';

enum class Kind { character, continuation, tab, colour, link, other };

struct Piece {
  Kind kind = Kind::other;
  std::string_view text;
};

// "ESC [ parameters final"
Piece control_sequence(std::string_view text) {
  std::size_t end = 2;
  while (end < text.size() && text[end] >= 0x20 && text[end] <= 0x3f) ++end;
  const bool whole = end < text.size();
  const auto piece = text.substr(0, whole ? end + 1 : end);
  return {whole && text[end] == 'm' ? Kind::colour : Kind::other, piece};
}

// "ESC ] text BEL" or "ESC ] text ESC \"
Piece system_command(std::string_view text) {
  const auto end = text.find_first_of("\a\x1b", 2);
  if (end == std::string_view::npos) return {Kind::other, text};
  const auto piece = text.substr(0, text[end] == '\a' ? end + 1 : end + 2);
  return {piece.starts_with("\x1b]8;") ? Kind::link : Kind::other, piece};
}

// "ESC intermediates final"; tput sgr0 sends "ESC ( B".
Piece short_sequence(std::string_view text) {
  std::size_t end = 1;
  while (end < text.size() && text[end] >= 0x20 && text[end] <= 0x2f) ++end;
  return {Kind::other, text.substr(0, end + 1)};
}

Piece next_piece(std::string_view text) {
  const auto c = static_cast<unsigned char>(text.front());
  if (c == escape) {
    if (text.starts_with("\x1b[")) return control_sequence(text);
    if (text.starts_with("\x1b]")) return system_command(text);
    return short_sequence(text);
  }
  const auto piece = text.substr(0, 1);
  if (c == '\t') return {Kind::tab, piece};
  if (c < 0x20 || c == 0x7f) return {Kind::other, piece};
  return {(c & 0xc0) == 0x80 ? Kind::continuation : Kind::character, piece};  // UTF-8 continuation bytes take no column
}

template <class Visitor>
void for_each_piece(std::string_view text, Visitor visit) {
  while (!text.empty()) {
    const auto piece = next_piece(text);
    visit(piece);
    text.remove_prefix(piece.text.size());
  }
}

std::size_t width_of(Kind kind) {
  return kind == Kind::character ? 1 : kind == Kind::tab ? 8 : 0;
}

}  // namespace

std::string one_line_text(std::string_view text, std::size_t max_columns) {
  std::string result;
  std::size_t columns = 0;
  bool cut = false;
  bool coloured = false;
  for_each_piece(text, [&](const Piece& piece) {
    if (piece.kind == Kind::other) return;
    if (piece.kind == Kind::colour) coloured = piece.text != "\x1b[0m" && piece.text != "\x1b[m";
    const auto width = width_of(piece.kind);
    cut |= max_columns - columns < width;
    if (cut && piece.kind != Kind::colour && piece.kind != Kind::link) return;
    columns += width;
    result += piece.text;
  });
  if (coloured) result += "\x1b[0m";
  return result;
}

std::string plain_text(std::string_view text) {
  std::string result;
  for_each_piece(text, [&](const Piece& piece) {
    if (piece.kind == Kind::character || piece.kind == Kind::continuation || piece.kind == Kind::tab)
      result += piece.text;
  });
  return result;
}

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  for_each_piece(text, [&](const Piece& piece) { columns += width_of(piece.kind); });
  return columns;
}

std::string_view after_last_redraw(std::string_view line) {
  while (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  const auto last = line.rfind('\r');
  return last == std::string_view::npos ? line : line.substr(last + 1);
}

}  // namespace ddprun
