#include "launcher/dashboard/page.h"

#include <fmt/format.h>

namespace ddprun::dashboard {
namespace {

#include "page_source.inc"

constexpr std::string_view nonce_mark = "@NONCE@";
constexpr std::string_view island_mark = "@ISLAND@";

// "<" would end the element that holds the text, or begin a comment in it.
std::string without_markup(std::string_view json) {
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    if (c == '<')
      text += "\\u003c";
    else
      text += c;
  }
  return text;
}

}  // namespace

std::string page_with(std::string_view nonce, std::string_view island) {
  std::string page;
  for (std::string_view rest = page_source; !rest.empty();) {
    const auto mark = rest.find('@');
    page += rest.substr(0, mark);
    if (mark == std::string_view::npos) break;
    rest.remove_prefix(mark);
    if (rest.starts_with(nonce_mark)) {
      page += nonce;
      rest.remove_prefix(nonce_mark.size());
    } else if (rest.starts_with(island_mark)) {
      page += without_markup(island);
      rest.remove_prefix(island_mark.size());
    } else {
      page += rest.front();
      rest.remove_prefix(1);
    }
  }
  return page;
}

std::string content_policy(std::string_view nonce) {
  return fmt::format(
      "default-src 'none'; connect-src 'self'; img-src data:; script-src 'nonce-{0}'; style-src 'nonce-{0}'; "
      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      nonce);
}

std::string report_page(const std::vector<std::string>& messages) {
  std::string island = "[";
  for (const auto& message : messages) island += (island.size() > 1 ? ",\n" : "") + message;
  return page_with("report", island + "]");
}

}  // namespace ddprun::dashboard
