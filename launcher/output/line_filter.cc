#include "ddprun/launcher/output/line_filter.h"

#include <algorithm>

namespace ddprun {

void LineFilter::feed(std::string_view bytes, std::string& out) {
  std::string whole;
  lines_.feed(bytes, whole);
  pick(whole, out);
}

void LineFilter::flush(std::string& out) {
  std::string last;
  lines_.flush(last);
  pick(last, out);
}

void LineFilter::pick(std::string_view lines, std::string& out) const {
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

}  // namespace ddprun
