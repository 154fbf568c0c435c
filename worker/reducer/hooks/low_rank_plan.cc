#include "worker/reducer/hooks/low_rank_plan.h"

#include <algorithm>
#include <cmath>

namespace ddprun {
namespace {

std::size_t rank_within(const PowerSgdOptions& options, std::size_t rows, std::size_t columns) {
  return std::min({static_cast<std::size_t>(options.matrix_approximation_rank), rows, columns});
}

bool is_worth_it(const PowerSgdOptions& options, std::size_t rows, std::size_t columns) {
  const auto factors = static_cast<double>((rows + columns) * rank_within(options, rows, columns));
  return factors * options.min_compression_rate < static_cast<double>(rows * columns);
}

LowRankMatrix whole_bucket(const PowerSgdOptions& options, const GradBucket& bucket) {
  auto side = static_cast<std::size_t>(std::sqrt(static_cast<double>(bucket.span.count)));
  while (side * side < bucket.span.count) ++side;
  return {.name = "bucket " + std::to_string(bucket.index),
          .rows = side,
          .columns = side,
          .rank = rank_within(options, side, side)};
}

void add_slice(const PowerSgdOptions& options, const GradSlice& slice, LowRankPlan& plan) {
  const bool matrix = slice.shape.size() > 1 && slice.count > 0;
  const auto rows = matrix ? static_cast<std::size_t>(slice.shape[0]) : 1;
  const auto columns = slice.count / rows;
  if (matrix && is_worth_it(options, rows, columns)) {
    plan.matrices.push_back({.name = std::string(slice.name),
                             .offset = slice.offset,
                             .rows = rows,
                             .columns = columns,
                             .rank = rank_within(options, rows, columns)});
  } else {
    plan.rest.push_back({.name = std::string(slice.name),
                         .shape = {slice.shape.begin(), slice.shape.end()},
                         .offset = slice.offset,
                         .count = slice.count});
  }
}

void place_messages(LowRankPlan& plan) {
  for (auto& matrix : plan.matrices) {
    matrix.left = plan.first_message;
    matrix.right = plan.second_message;
    plan.first_message += matrix.rank * matrix.rows;
    plan.second_message += matrix.rank * matrix.columns;
  }
  for (auto& slice : plan.rest) {
    slice.place = plan.first_message;
    plan.first_message += slice.count;
  }
}

}  // namespace

LowRankPlan plan_low_rank(PowerSgdForm form, const PowerSgdOptions& options, const GradBucket& bucket) {
  LowRankPlan plan;
  plan.elements = bucket.span.count;
  if (bucket.span.dtype == DType::float64) return plan;
  if (form == PowerSgdForm::batched) {
    plan.matrices.push_back(whole_bucket(options, bucket));
    plan.elements = plan.matrices[0].rows * plan.matrices[0].columns;
  } else {
    for (const auto& slice : bucket.slices) add_slice(options, slice, plan);
  }
  place_messages(plan);
  return plan;
}

}  // namespace ddprun
