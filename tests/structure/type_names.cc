#include "tests/structure/type_names.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

namespace ddprun::testing {
namespace {

using Tokens = std::vector<std::string>;

bool in_identifier(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// Returns the end of a literal that begins with an opening quote.
std::size_t end_of_literal(std::string_view text, std::size_t begin) {
  std::size_t at = begin + 1;
  while (at < text.size() && text[at] != text[begin]) at += text[at] == '\\' ? 2 : 1;
  return at + 1;
}

// Takes R"name( ... )name".
std::size_t end_of_raw_string(std::string_view text, std::size_t quote) {
  const auto open = text.find('(', quote);
  if (open == std::string_view::npos) return text.size();
  const auto close = ")" + std::string(text.substr(quote + 1, open - quote - 1)) + "\"";
  const auto end = text.find(close, open);
  return end == std::string_view::npos ? text.size() : end + close.size();
}

std::size_t end_of_comment(std::string_view text, std::size_t at) {
  const auto end = text.substr(at, 2) == "//" ? text.find('\n', at) : text.find("*/", at + 2);
  return end == std::string_view::npos ? text.size() : end + 2;
}

// Returns names, "::" and single characters, without comments, literals and white space.
Tokens tokens_of(std::string_view text) {
  Tokens tokens;
  for (std::size_t at = 0; at < text.size();) {
    const auto two = text.substr(at, 2);
    const char c = text[at];
    if (two == "//" || two == "/*") {
      at = end_of_comment(text, at);
    } else if (two == "R\"") {
      at = end_of_raw_string(text, at + 1);
    } else if (c == '"' || c == '\'') {
      at = end_of_literal(text, at);
    } else if (in_identifier(c)) {
      const auto end = std::find_if_not(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(),
                                        [](char each) { return in_identifier(each) || each == '\''; });
      tokens.emplace_back(text.begin() + static_cast<std::ptrdiff_t>(at), end);
      at += tokens.back().size();
    } else {
      if (two == "::") tokens.emplace_back(two);
      if (two != "::" && std::isspace(static_cast<unsigned char>(c)) == 0) tokens.emplace_back(1, c);
      at += two == "::" ? 2 : 1;
    }
  }
  return tokens;
}

class Reader {
 public:
  explicit Reader(Tokens tokens) : tokens_(std::move(tokens)) {}

  std::vector<std::string> types() {
    while (at_ < tokens_.size()) {
      const auto& token = tokens_[at_++];
      if (token == "namespace") {
        open_namespace();
      } else if (token == "struct" || token == "class" || token == "union" || token == "enum") {
        open_type();
      } else if (token == "{") {
        scopes_.push_back("");
      } else if (token == "}" && !scopes_.empty()) {
        scopes_.pop_back();
      }
    }
    return types_;
  }

 private:
  std::string qualified_name() {
    std::string name;
    while (at_ < tokens_.size() && (tokens_[at_] == "::" || in_identifier(tokens_[at_].front())) &&
           tokens_[at_] != "final")
      name += tokens_[at_++];
    return name;
  }

  void open_namespace() {
    const auto name = qualified_name();
    if (at_ < tokens_.size() && tokens_[at_] == "{") {
      scopes_.push_back(name);
      ++at_;
    }
  }

  void open_type() {
    while (at_ < tokens_.size() && (tokens_[at_] == "class" || tokens_[at_] == "struct")) ++at_;  // it is an enum class
    const auto name = qualified_name();
    if (name.empty()) return;
    if (at_ < tokens_.size() && tokens_[at_] == "final") ++at_;
    if (at_ < tokens_.size() && tokens_[at_] == ":")
      while (at_ < tokens_.size() && tokens_[at_] != "{" && tokens_[at_] != ";") ++at_;
    if (at_ == tokens_.size() || tokens_[at_] != "{") return;
    scopes_.push_back(name);
    ++at_;
    if (std::ranges::count(scopes_, "") == 0) types_.push_back(joined());
  }

  std::string joined() const {
    std::string all;
    for (const auto& scope : scopes_) all += (all.empty() ? "" : "::") + scope;
    return all;
  }

  const Tokens tokens_;
  std::size_t at_ = 0;
  std::vector<std::string> scopes_;  // empty: one without a name, or no namespace and no type
  std::vector<std::string> types_;
};

bool is_source(const std::filesystem::path& file) {
  const auto extension = file.extension();
  return extension == ".h" || extension == ".cc" || extension == ".cu";
}

}  // namespace

std::vector<std::string> defined_types(std::string_view source) {
  return Reader(tokens_of(source)).types();
}

std::vector<std::string> types_defined_twice(const std::filesystem::path& tree, const std::vector<std::string>& parts) {
  std::map<std::string, std::set<std::string>> files;
  for (const auto& part : parts)
    for (const auto& entry : std::filesystem::recursive_directory_iterator(tree / part)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      std::ifstream in(entry.path());
      const std::string text(std::istreambuf_iterator<char>(in), {});
      for (const auto& type : defined_types(text)) files[type].insert(entry.path().lexically_relative(tree).string());
    }
  std::vector<std::string> twice;
  for (const auto& [type, all] : files) {
    if (all.size() < 2) continue;
    twice.push_back(type + ":");
    for (const auto& file : all) twice.back() += " " + file;
  }
  return twice;
}

}  // namespace ddprun::testing
