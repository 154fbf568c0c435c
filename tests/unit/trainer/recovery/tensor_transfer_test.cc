#include "worker/trainer/recovery/tensor_transfer.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "worker/tensor/tensor.h"
#include "tests/support/catch.h"
#include "tests/unit/trainer/ranks.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace ddprun::trainer;

namespace {

// Several of these together, and single ones alone, are larger than a message.
const std::vector<std::int64_t> sizes{3, 5'000'000, 0, 1, 700'000, 900'000, 2'500'000, 17};

float value_of(std::size_t tensor, std::int64_t element) {
  return static_cast<float>(static_cast<std::int64_t>(tensor) * 31 + element % 9973);
}

std::vector<Tensor> tensors(bool lags) {
  std::vector<Tensor> all;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    all.push_back(Tensor::zeros({sizes[i]}));
    auto* values = all.back().data<float>();
    for (std::int64_t k = 0; k < sizes[i]; ++k) values[k] = lags ? -1 : value_of(i, k);
  }
  return all;
}

bool are_right(const std::vector<Tensor>& all) {
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::int64_t k = 0; k < sizes[i]; ++k)
      if (all[i].data<float>()[k] != value_of(i, k)) return false;
  return true;
}

}  // namespace

TEST_CASE("ranks that lag get every tensor from the others, however many there are of each") {
  const auto lagging = GENERATE(values<std::vector<int>>({{0}, {2}, {0, 3}, {1, 2, 3}}));
  CAPTURE(lagging);
  std::vector<char> right(4), written(4);
  run_ranks(4, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    const auto all = tensors(std::ranges::count(lagging, group.rank()) > 0);
    const auto before = all[1].storage()->version();
    transfer_tensors(all, group, lagging);
    right[rank] = are_right(all);
    written[rank] = all[1].storage()->version() != before;
  });
  CHECK(std::ranges::count(right, 1) == 4);
  for (int rank = 0; rank < 4; ++rank)
    CHECK(written[static_cast<std::size_t>(rank)] == (std::ranges::count(lagging, rank) > 0));
}

TEST_CASE("each rank that has the tensors sends an equal share of them") {
  std::vector<std::int64_t> received(3);
  run_ranks(3, [&](ProcessGroup& group) {
    // The values tell their sender.
    std::vector<Tensor> all{Tensor::zeros({6 << 20})};
    auto* values = all[0].data<float>();
    std::fill(values, values + (6 << 20), static_cast<float>(group.rank()));
    transfer_tensors(all, group, {1});
    if (group.rank() == 1)
      for (std::size_t rank = 0; rank < 3; ++rank) received[rank] = std::count(values, values + (6 << 20), float(rank));
  });
  CHECK(received == std::vector<std::int64_t>{3 << 20, 0, 3 << 20});
}
