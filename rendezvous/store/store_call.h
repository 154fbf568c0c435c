#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace ddprun {

// Calls that do not wait, as values: Store::execute() takes several of them. Plain values.
struct SetCall {
  std::string key, value;
};
struct AppendCall {
  std::string key, suffix;
};
// Its result is the sum, as decimal text.
struct AddCall {
  std::string key;
  std::int64_t delta = 1;
};
// Its result is that of Store::compare_set().
struct CompareSetCall {
  std::string key, expected, desired;
};
// Its result is the key's value, if it has one.
struct FindCall {
  std::string key;
};
// It does nothing on a store without last wills.
struct SetWillCall {
  std::string key, value;
};

using StoreCall = std::variant<SetCall, AppendCall, AddCall, CompareSetCall, FindCall, SetWillCall>;
using StoreResults = std::vector<std::optional<std::string>>;  // one for each call; none where it has no result

}  // namespace ddprun
