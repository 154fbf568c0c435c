#include "worker/cuda/emulator/call_log.h"

#include <algorithm>
#include <charconv>

namespace ddprun::cuda::emulator {
namespace {

// Returns the text up to the next colon, which is removed too.
std::string_view take_field(std::string_view& text) {
  const std::string_view field = text.substr(0, text.find(':'));
  text.remove_prefix(std::min(field.size() + 1, text.size()));
  return field;
}

template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end != text.data() ? std::optional(value) : std::nullopt;
}

// Returns whether what was asked for is this function on this device.
bool selects(std::string_view asked, std::string_view function, int device) {
  const auto at = asked.find('@');
  if (const auto name = asked.substr(0, at); name != "*" && name != function) return false;
  return at == asked.npos || asked.substr(at + 1) == std::to_string(device);
}

}  // namespace

bool CallLog::add(std::string_view function, int device) {
  auto& counts = counts_[function];
  const auto index = static_cast<std::size_t>(device);
  if (counts.size() <= index) counts.resize(index + 1);
  ++counts[index];
  if (failing_function_.empty() || !selects(failing_function_, function, device)) return false;
  const bool fails = ++selected_ == failing_call_;
  has_failed_ = has_failed_ || fails;
  return fails;
}

void CallLog::fail(std::string_view specification) {
  *this = CallLog();
  failing_function_ = take_field(specification);
  failing_call_ = number<std::uint64_t>(take_field(specification)).value_or(1);
  failing_code_ = number<int>(take_field(specification));
}

std::uint64_t CallLog::count(std::string_view function) const {
  std::uint64_t sum = 0;
  for (const auto& [called, counts] : counts_)
    for (std::size_t device = 0; device < counts.size(); ++device)
      if (selects(function, called, static_cast<int>(device))) sum += counts[device];
  return sum;
}

}  // namespace ddprun::cuda::emulator
