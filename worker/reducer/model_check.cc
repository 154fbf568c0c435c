#include "worker/reducer/model_check.h"

#include <algorithm>
#include <string>

#include "common/error.h"
#include "worker/comm/collectives.h"

namespace ddprun {
namespace {

// Returns a text such as "conv1.weight: float32 [10, 1, 5, 5]".
std::string describe(const ParameterRef& parameter) {
  std::string shape;
  for (const auto size : parameter.shape) shape += (shape.empty() ? "" : ", ") + std::to_string(size);
  return fmt::format("{}: {} [{}]", parameter.name, name_of(parameter.dtype), shape);
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t start = 0; start < text.size();) {
    const auto end = text.find('\n', start);
    lines.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return lines;
}

std::string entry(const std::vector<std::string>& lines, std::size_t index) {
  return index < lines.size() ? lines[index] : "nothing";
}

// Returns rank 0's text, at every rank.
std::string text_of_rank_0(ProcessGroup& group, const std::string& own) {
  std::vector<std::int64_t> length = {static_cast<std::int64_t>(own.size())};
  group.broadcast(span_of(length), 0, {.blocking = true});
  std::string text = group.rank() == 0 ? own : std::string(static_cast<std::size_t>(length[0]), '\0');
  group.broadcast({text.data(), text.size(), DType::uint8}, 0, {.blocking = true});
  return text;
}

}  // namespace

void check_same_model(ProcessGroup& group, const std::vector<ParameterRef>& parameters) {
  std::string own;
  for (const auto& parameter : parameters) own += describe(parameter) + "\n";
  // All lists are gathered only when one differs from rank 0's.
  std::vector<std::int64_t> different = {own == text_of_rank_0(group, own) ? 0 : 1};
  allreduce(group, different, ReduceOp::max);
  if (different[0] == 0) return;

  const auto texts = all_gather_bytes(group, own);
  const auto reference = split_lines(texts[0]);
  for (std::size_t r = 1; r < texts.size(); ++r) {
    const auto theirs = split_lines(texts[r]);
    for (std::size_t i = 0; i < std::max(reference.size(), theirs.size()); ++i) {
      const auto here = entry(reference, i), there = entry(theirs, i);
      if (here == there) continue;
      throw make_error(Errc::mismatch,
                       "the ranks have different models: entry {} is \"{}\" at rank 0 but \"{}\" at rank {}", i, here,
                       there, r);
    }
  }
}

}  // namespace ddprun
