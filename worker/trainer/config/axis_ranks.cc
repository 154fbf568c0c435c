#include "worker/trainer/config/axis_ranks.h"

#include <algorithm>

#include "common/error.h"
#include "worker/trainer/config/model_axes.h"

namespace ddprun::trainer {
namespace {

// A misspelled name would be that of an axis of one rank.
void check_name(std::string_view axis) {
  if (std::ranges::find(model_axes(), axis, &ModelAxis::name) == model_axes().end())
    throw make_error(Errc::internal, "there is no axis {}", axis);
}

}  // namespace

AxisRanks::AxisRanks(std::initializer_list<std::pair<std::string_view, int>> ranks) {
  for (const auto& [axis, count] : ranks) (*this)[axis] = count;
}

int AxisRanks::on(std::string_view axis) const {
  check_name(axis);
  const auto found = ranks_.find(axis);
  return found == ranks_.end() ? 1 : found->second;
}

int& AxisRanks::operator[](std::string_view axis) {
  check_name(axis);
  return ranks_.try_emplace(std::string(axis), 1).first->second;
}

bool AxisRanks::operator==(const AxisRanks& other) const {
  return std::ranges::all_of(model_axes(),
                             [&](const ModelAxis& axis) { return on(axis.name()) == other.on(axis.name()); });
}

}  // namespace ddprun::trainer
