#include "worker/trainer/recovery/state_stream.h"

#include <bit>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/error.h"

namespace ddprun::trainer {

std::size_t StreamedParameter::bytes() const {
  std::size_t sum = 0;
  for (const auto& tensor : tensors) sum += tensor.bytes();
  return sum;
}

std::vector<StreamedParameter> streamed_parameters(const TrainState& state) {
  std::vector<StreamedParameter> all;
  std::map<std::string, std::size_t, std::less<>> numbers;
  for (const auto& [name, parameter] : state.model->named_parameters()) {
    numbers.emplace(name, all.size());
    all.push_back({.variable = parameter, .tensors = {parameter.value()}});
  }
  for (const auto& [name, tensor] : state.optimizer->state()) {
    const auto found = numbers.find(std::string_view(name).substr(0, name.rfind('.')));
    if (found == numbers.end()) throw make_error(Errc::internal, "{} belongs to no parameter", name);
    all[found->second].tensors.push_back(tensor);
  }
  return all;
}

// Numbers in a line, then the rest. The rate is exact, as its bits.
std::string encode(const StreamHeader& header) {
  return fmt::format("{} {} {} {} {} {} {} {}\n{}", static_cast<int>(header.kind), header.first, header.end,
                     header.step_count, std::bit_cast<std::uint64_t>(header.lr), header.caught_up ? 1 : 0,
                     header.with_gradient.size(), fmt::join(header.with_gradient, " "), header.rest);
}

StreamHeader decode_stream_header(std::string_view text) {
  const auto line_end = text.find('\n');
  std::istringstream line{std::string(text.substr(0, line_end))};
  StreamHeader header;
  int kind = -1, caught_up = 0;
  std::uint64_t lr = 0;
  std::size_t count = 0;
  line >> kind >> header.first >> header.end >> header.step_count >> lr >> caught_up >> count;
  for (std::size_t i = 0, number = 0; i < count && line >> number; ++i) header.with_gradient.push_back(number);
  const bool is_known = kind >= 0 && kind <= static_cast<int>(StreamHeader::Kind::rest);
  if (!line || !is_known || line_end == std::string_view::npos || header.first > header.end)
    throw make_error(Errc::protocol, "'{}' is no header of a state that is sent", text.substr(0, line_end));
  header.kind = static_cast<StreamHeader::Kind>(kind);
  header.lr = std::bit_cast<double>(lr);
  header.caught_up = caught_up != 0;
  header.rest = text.substr(line_end + 1);
  return header;
}

}  // namespace ddprun::trainer
