#include "worker/reducer/hooks/power_sgd_hook.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>
#include <vector>

#include "worker/reducer/bucket_stages.h"
#include "worker/reducer/hooks/float_conversion.h"
#include "worker/reducer/hooks/low_rank.h"
#include "worker/reducer/hooks/low_rank_plan.h"

namespace ddprun {
namespace {

// A bucket of factors, for the inner hook: each factor, and each slice that is not compressed, is a parameter to it.
struct Message {
  std::vector<float> values;
  RegisteredBuffer memory;  // has the type of the bucket
  std::deque<std::vector<std::int64_t>> shapes;
  std::vector<GradSlice> slices;
  GradBucket bucket;

  void add(std::string_view name, std::vector<std::int64_t> shape, std::size_t offset, std::size_t count) {
    slices.push_back({name, shapes.emplace_back(std::move(shape)), offset, count});
  }
  void allocate(ProcessGroup& group, std::size_t count, DType dtype) {
    values.resize(count);
    memory = group.allocate(count * size_of(dtype));
    bucket.span = {memory.data(), count, dtype};
    bucket.slices = slices;
  }
  WorkPtr average(CommHook& inner) {
    convert(values.data(), bucket.span);
    return inner.start(bucket);
  }
  void take() { convert(bucket.span, values.data()); }
};

std::vector<std::int64_t> factor_shape(std::size_t rank, std::size_t length) {
  return {static_cast<std::int64_t>(rank), static_cast<std::int64_t>(length)};
}

bool all_finite(const std::vector<float>& values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

class PowerSgdHook final : public CommHook {
 public:
  PowerSgdHook(PowerSgdForm form, const PowerSgdOptions& options, ProcessGroup& group, std::unique_ptr<CommHook> inner)
      : form_(form), options_(options), group_(group), inner_(std::move(inner)) {}

  void prepare(std::span<const GradBucket> buckets) override {
    for (const auto& bucket : buckets) add_bucket(bucket);
    std::vector<GradBucket> all(buckets.begin(), buckets.end());
    for (const auto message : {&Compressed::first, &Compressed::second}) {
      for (auto& each : buckets_) {
        auto& bucket = (each.*message).bucket;
        bucket.index = all.size();
        bucket.last = &each == &buckets_.back();
        all.push_back(bucket);
      }
    }
    inner_->prepare(all);
  }

  WorkPtr start(const GradBucket& bucket) override {
    auto& compressed = buckets_[bucket.index];
    const bool compresses = passes_[0] >= options_.start_powerSGD_iter && !compressed.plan.matrices.empty();
    auto work = compresses ? start_compressed(bucket, compressed) : inner_->start(bucket);
    if (bucket.last) ++passes_[0];
    return work;
  }

  void cancel() override {
    inner_->cancel();
    stages_.cancel();
  }

  std::vector<HookState> state() override {
    auto all = inner_->state();
    all.push_back({"powersgd.passes", span_of(passes_)});
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      auto& each = buckets_[b];
      if (each.plan.matrices.empty()) continue;
      const auto name = "powersgd.bucket" + std::to_string(b);
      if (options_.use_error_feedback) all.push_back({name + ".error", span_of(each.residual)});
      if (options_.warm_start) all.push_back({name + ".q", span_of(each.second.values)});
    }
    return all;
  }

 private:
  struct Compressed {
    LowRankPlan plan;
    std::vector<float> residual;  // between passes the error; within one the matrices to send, then what they leave out
    Message first;                // P, and what is not compressed
    Message second;               // Q
  };

  void add_bucket(const GradBucket& bucket) {
    auto& added = buckets_.emplace_back();
    added.plan = plan_low_rank(form_, options_, bucket);
    const auto& plan = added.plan;
    added.residual.resize(plan.matrices.empty() ? 0 : plan.elements);
    for (const auto& matrix : plan.matrices) {
      added.first.add(matrix.name, factor_shape(matrix.rank, matrix.rows), matrix.left, matrix.rank * matrix.rows);
      added.second.add(matrix.name, factor_shape(matrix.rank, matrix.columns), matrix.right,
                       matrix.rank * matrix.columns);
    }
    for (const auto& slice : plan.rest) added.first.add(slice.name, slice.shape, slice.place, slice.count);
    added.first.allocate(group_, plan.first_message, bucket.span.dtype);
    added.second.allocate(group_, plan.second_message, bucket.span.dtype);
    scratch_.resize(std::max(scratch_.size(), plan.elements));
  }

  static MatrixView view(const Compressed& bucket, const LowRankMatrix& matrix) {
    return {bucket.residual.data() + matrix.offset, matrix.rows, matrix.columns};
  }

  WorkPtr start_compressed(const GradBucket& bucket, Compressed& compressed) {
    take_gradients(bucket.span, compressed);
    draw_right_factors(bucket.index, compressed);
    for (const auto& matrix : compressed.plan.matrices)
      multiply(view(compressed, matrix), matrix.rank, compressed.second.values.data() + matrix.right,
               compressed.first.values.data() + matrix.left);
    for (const auto& slice : compressed.plan.rest)
      std::copy_n(compressed.residual.data() + slice.offset, slice.count, compressed.first.values.data() + slice.place);
    return stages_.add(compressed.first.average(*inner_),
                       {[this, &compressed] { return send_right_factors(compressed); },
                        [this, &compressed, span = bucket.span] {
                          expand(compressed, span);
                          return WorkPtr();
                        }});
  }

  void take_gradients(Span gradients, Compressed& compressed) {
    convert(gradients, scratch_.data());
    auto* residual = compressed.residual.data();
    if (!options_.use_error_feedback) std::fill_n(residual, compressed.residual.size(), 0.0f);
    for (std::size_t i = 0; i < gradients.count; ++i) residual[i] += scratch_[i];
  }

  // Draws the iteration's start: the last pass's Q, or random vectors.
  void draw_right_factors(std::size_t index, Compressed& compressed) const {
    auto& values = compressed.second.values;
    if (!options_.warm_start) std::fill(values.begin(), values.end(), 0.0f);
    std::uint64_t seed = options_.random_seed + (static_cast<std::uint64_t>(passes_[0]) << 40) + (index << 20);
    for (const auto& matrix : compressed.plan.matrices)
      orthonormalize_or_draw(matrix.rank, matrix.columns, values.data() + matrix.right, (seed += 16) << 8);
  }

  WorkPtr send_right_factors(Compressed& compressed) {
    compressed.first.take();
    for (const auto& matrix : compressed.plan.matrices) {
      auto* left = compressed.first.values.data() + matrix.left;
      orthonormalize(matrix.rank, matrix.rows, left);
      multiply_transposed(view(compressed, matrix), matrix.rank, left, compressed.second.values.data() + matrix.right);
    }
    return compressed.second.average(*inner_);
  }

  void expand(Compressed& compressed, Span gradients) {
    compressed.second.take();
    std::fill(scratch_.begin(), scratch_.end(), 0.0f);
    for (const auto& matrix : compressed.plan.matrices) expand(compressed, matrix);
    for (const auto& slice : compressed.plan.rest) {
      std::copy_n(compressed.first.values.data() + slice.place, slice.count, scratch_.data() + slice.offset);
      std::fill_n(compressed.residual.data() + slice.offset, slice.count, 0.0f);
    }
    if (!all_finite(scratch_)) forget(compressed);
    convert(scratch_.data(), gradients);
  }

  // Makes a pass with gradients that are not finite leave nothing to later ones. It is so at all ranks.
  static void forget(Compressed& compressed) {
    std::ranges::fill(compressed.residual, 0.0f);
    std::ranges::fill(compressed.second.values, 0.0f);
  }

  void expand(Compressed& compressed, const LowRankMatrix& matrix) {
    for (std::size_t row = 0; row < matrix.rows; ++row) {
      const auto at = matrix.offset + row * matrix.columns;
      expand_row(row, view(compressed, matrix), matrix.rank, compressed.first.values.data() + matrix.left,
                 compressed.second.values.data() + matrix.right, scratch_.data() + at);
      for (std::size_t i = at; i < at + matrix.columns; ++i) compressed.residual[i] -= scratch_[i];
    }
  }

  const PowerSgdForm form_;
  const PowerSgdOptions options_;
  ProcessGroup& group_;
  const std::unique_ptr<CommHook> inner_;
  std::deque<Compressed> buckets_;
  std::vector<float> scratch_;  // has the size of the largest bucket
  std::vector<std::int64_t> passes_{0};
  BucketStages stages_;
};

}  // namespace

std::unique_ptr<CommHook> make_power_sgd_hook(PowerSgdForm form, const PowerSgdOptions& options, ProcessGroup& group,
                                              std::unique_ptr<CommHook> inner) {
  return std::make_unique<PowerSgdHook>(form, options, group, std::move(inner));
}

}  // namespace ddprun
