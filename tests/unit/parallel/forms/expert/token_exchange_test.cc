#include "worker/parallel/forms/expert/token_exchange.h"

#include "worker/autograd/ops.h"
#include "tests/support/catch.h"
#include "tests/unit/parallel/small_net.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

// Returns a rank's counts for each of four experts.
nn::ExpertCounts counts_of(int rank) {
  return rank == 0 ? nn::ExpertCounts{1, 0, 2, 1} : nn::ExpertCounts{2, 1, 0, 0};
}

// Returns rows of expert e, number i of a rank: 100 rank + 10 e + i, and the same negative.
Tensor rows_of(int rank) {
  std::vector<float> values;
  const auto counts = counts_of(rank);
  for (std::size_t e = 0; e < counts.size(); ++e)
    for (std::int64_t i = 0; i < counts[e]; ++i) {
      const auto value = static_cast<float>(100 * rank + 10 * static_cast<int>(e) + i);
      values.insert(values.end(), {value, -value});
    }
  return Tensor::from(values, {static_cast<std::int64_t>(values.size() / 2), 2});
}

std::vector<float> first_column(const Tensor& rows) {
  std::vector<float> column;
  for (std::int64_t i = 0; i < rows.size(0); ++i) column.push_back(rows.data<float>()[2 * i]);
  return column;
}

}  // namespace

TEST_CASE("rows go to the ranks of their experts, by expert and rank, and come back") {
  run_ranks(2, [](ProcessGroup& process_group) {
    CountedGroup group(process_group);
    const auto counts = counts_of(group.rank());
    const auto routes = routes_of(counts, exchange_counts(counts, group), group.size());
    require(routes.own == (group.rank() == 0 ? nn::ExpertCounts{3, 1} : nn::ExpertCounts{2, 1}), "counts");
    const Tensor there = to_experts(rows_of(group.rank()), routes, group);
    require(first_column(there) ==
                (group.rank() == 0 ? std::vector<float>{0, 100, 101, 110} : std::vector<float>{20, 21, 30}),
            "rows at their experts");
    require(first_column(from_experts(there, routes, group)) == first_column(rows_of(group.rank())),
            "rows that return");
    // Each rank sends two counts of 8 bytes, and rows of 8 bytes: three rows of either rank leave it.
    require(group.bytes() == (group.rank() == 0 ? 16 + 3 * 8 + 3 * 8 : 16 + 3 * 8 + 3 * 8), "bytes");
  });
}

TEST_CASE("gradients of rows take the way back, also at a rank without rows") {
  run_ranks(2, [](ProcessGroup& process_group) {
    CountedGroup group(process_group);
    const bool has_rows = group.rank() == 0;
    const auto counts = has_rows ? counts_of(0) : nn::ExpertCounts(4);
    const auto routes = routes_of(counts, exchange_counts(counts, group), group.size());
    const Variable rows(has_rows ? rows_of(0) : Tensor::zeros({0, 2}), has_rows);
    const Variable there = send_to_experts(rows, routes, group);
    const Variable result = return_from_experts(mul(there, 3), routes, group);
    result.backward(has_rows ? rows_of(0) : Tensor::zeros({0, 2}));
    if (!has_rows) return;
    const auto values = first_column(rows_of(0)), gradient = first_column(rows.grad());
    for (std::size_t i = 0; i < values.size(); ++i) require(gradient[i] == 3 * values[i], "gradient");
  });
}
