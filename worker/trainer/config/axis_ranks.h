#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace ddprun::trainer {

// The numbers of ranks on the axes of config/model_axes.h, by name: one on an axis that is not given.
//
// Threads: any number may read. Errors: Errc::internal for a name that no axis has.
class AxisRanks {
 public:
  AxisRanks() = default;
  AxisRanks(std::initializer_list<std::pair<std::string_view, int>> ranks);

  int on(std::string_view axis) const;
  // Returns an axis' number, to be changed; it stays where it is for as long as this object is there.
  int& operator[](std::string_view axis);

  bool operator==(const AxisRanks& other) const;

 private:
  std::map<std::string, int, std::less<>> ranks_;
};

}  // namespace ddprun::trainer
