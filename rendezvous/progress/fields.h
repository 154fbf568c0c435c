#pragma once

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace ddprun {

// Returns the whole text as a number; nullopt for any other text.
template <class T>
std::optional<T> number_in(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Splits a text into fields, each of which ends with a separator chosen by the caller. good() is false once a number
// was missing or malformed, so that the caller checks it once after all fields.
//
// Borrows the text, which must outlive it. Threads: not thread-safe. Errors: none thrown.
class Fields {
 public:
  explicit Fields(std::string_view text) : rest_(text) {}

  // Returns the text up to `end`, which is skipped, or up to the end of the text.
  std::string_view next(char end) {
    const auto size = std::min(rest_.find(end), rest_.size());
    const auto field = rest_.substr(0, size);
    rest_.remove_prefix(std::min(size + 1, rest_.size()));
    return field;
  }
  template <class T>
  T number(char end) {
    const auto value = number_in<T>(next(end));
    good_ = good_ && value.has_value();
    return value.value_or(T{});
  }
  bool flag(char end) { return number<int>(end) != 0; }

  std::string_view rest() const { return rest_; }
  bool at_end() const { return rest_.empty(); }
  bool good() const { return good_; }

 private:
  std::string_view rest_;
  bool good_ = true;
};

}  // namespace ddprun
