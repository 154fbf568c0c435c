// The reader of placements.json with arbitrary bytes: placements that it accepts are written and read again as they
// were, and their parts have each element of a tensor once; others give an error of one line that names the file.
#include <vector>

#include "common/error.h"
#include "worker/parallel/stored/placements_json.h"
#include "tests/fuzz/memory_file.h"

using namespace ddprun;
using namespace ddprun::fuzz;

namespace {

constexpr stored::StoredLimits limits{.ranks = 64, .bytes = 1 << 16};

void check_parts(const sharding::PlacedTensor& tensor) {
  std::vector<bool> is_there(static_cast<std::size_t>(tensor.spec().elements()));
  for (const auto& part : tensor.parts()) {
    const auto holders = tensor.holders(part);
    require(!holders.empty());
    const auto elements = tensor.local_elements(holders.front());
    for (const auto& [whole, local] : part.ranges) {
      require(local >= 0 && local + whole.count() <= elements);
      for (auto i = whole.begin; i < whole.end; ++i) {
        auto each = is_there.at(static_cast<std::size_t>(i));
        require(!each);
        each = true;
      }
    }
  }
  for (const bool each : is_there) require(each);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto state = stored::stored_state_from_json(text_of({data, size}), "placements.json", limits);
    const auto text = stored::to_json(state);
    require(stored::to_json(stored::stored_state_from_json(text, "placements.json", limits)) == text);
    for (const auto kind : stored::all_kinds)
      for (const auto& tensor : state.of(kind).tensors) check_parts(tensor);
  } catch (const Error& e) {
    const std::string_view what = e.what();
    require(e.code() == Errc::io && what.starts_with("placements.json: ") && what.find('\n') == what.npos);
  }
  return 0;
}
