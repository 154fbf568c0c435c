#include "worker/data/numbers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "common/error.h"
#include "common/mapped_file.h"

namespace ddprun::data {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const auto begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

// Takes the text before the separator; the separator is removed too.
std::string_view take(std::string_view& rest, char separator) {
  const auto end = std::min(rest.find(separator), rest.size());
  const auto part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

float number(std::string_view text, const std::filesystem::path& path, std::int64_t line) {
  float value = 0;
  const auto [stop, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || stop != text.data() + text.size() || !std::isfinite(value))
    throw make_error(Errc::io, "{}:{}: '{}' is no number", path.string(), line, text.substr(0, 40));
  return value;
}

}  // namespace

NumbersDataset::NumbersDataset(SampleLayout layout, std::vector<float> values)
    : layout_(std::move(layout)), values_(std::move(values)) {}

std::int64_t NumbersDataset::size() const {
  return static_cast<std::int64_t>(values_.size() * sizeof(float) / layout_.input_bytes());
}

void NumbersDataset::read(std::int64_t index, std::span<std::byte> input, std::span<std::byte> target) const {
  const auto begin = static_cast<std::size_t>(index) * input.size() / sizeof(float);
  std::memcpy(input.data(), values_.data() + begin, input.size());
  std::ranges::fill(target, std::byte{0});
}

std::unique_ptr<Dataset> load_csv(const std::filesystem::path& path, const SampleLayout& layout) {
  if (layout.input_dtype != DType::float32)
    throw make_error(Errc::usage, "{}: the inputs are {}, not numbers", path.string(), name_of(layout.input_dtype));
  const MappedFile file(path);
  std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  const std::size_t columns = layout.input_bytes() / sizeof(float);
  std::vector<float> values;
  for (std::int64_t line = 1; !text.empty(); ++line) {
    auto rest = trimmed(take(text, '\n'));
    const auto before = values.size();
    while (!rest.empty()) values.push_back(number(trimmed(take(rest, ',')), path, line));
    if (values.size() - before != columns)
      throw make_error(Errc::io, "{}:{}: expected {} numbers, found {}", path.string(), line, columns,
                       values.size() - before);
  }
  if (values.empty()) throw make_error(Errc::io, "{}: the file is empty", path.string());
  return std::make_unique<NumbersDataset>(layout, std::move(values));
}

}  // namespace ddprun::data
