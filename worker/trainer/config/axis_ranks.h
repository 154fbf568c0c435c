#pragma once

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace ddprun::trainer {

// The numbers of ranks on the axes of config/model_axes.h, by name: one on an axis that is not given.
class AxisRanks {
 public:
  AxisRanks() = default;
  AxisRanks(std::initializer_list<std::pair<const std::string, int>> ranks) : ranks_(ranks) {}

  int on(std::string_view axis) const {
    const auto found = ranks_.find(axis);
    return found == ranks_.end() ? 1 : found->second;
  }
  // Returns an axis' number, to be changed; it stays where it is for as long as this object is there.
  int& operator[](std::string_view axis) { return ranks_.try_emplace(std::string(axis), 1).first->second; }

  bool operator==(const AxisRanks& other) const { return has_numbers_of(other) && other.has_numbers_of(*this); }

 private:
  bool has_numbers_of(const AxisRanks& other) const {
    return std::ranges::all_of(other.ranks_, [this](const auto& each) { return on(each.first) == each.second; });
  }

  std::map<std::string, int, std::less<>> ranks_;
};

}  // namespace ddprun::trainer
