#include "worker/reducer/hooks/integer_hook.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/rounding.h"
#include "worker/reducer/bucket_stages.h"
#include "worker/reducer/hooks/float_conversion.h"
#include "worker/reducer/hooks/integer_code.h"

namespace ddprun {
namespace {

// Returns where channels begin in a bucket, ascending, from 0 on. Padding belongs to the channel before it.
std::vector<std::size_t> channel_starts(const GradBucket& bucket) {
  std::vector<std::size_t> starts;
  for (const auto& slice : bucket.slices) {
    const auto rows = slice.shape.size() < 2 ? 1 : std::max(slice.shape[0], std::int64_t{1});
    const auto length = std::max<std::size_t>(slice.count / static_cast<std::size_t>(rows), 1);
    for (std::size_t at = 0; at < slice.count; at += length) starts.push_back(slice.offset + at);
  }
  if (starts.empty()) starts.push_back(0);
  return starts;
}

std::vector<std::size_t> block_starts(const GradBucket& bucket, std::size_t block) {
  std::vector<std::size_t> starts{0};
  for (std::size_t at = block; at < bucket.span.count; at += block) starts.push_back(at);
  return starts;
}

std::vector<std::size_t> starts_of(const GradBucket& bucket, IntegerForm form) {
  if (form == IntegerForm::bits8) return {0};
  return form == IntegerForm::bits8_channel ? channel_starts(bucket)
                                            : block_starts(bucket, form == IntegerForm::bits4 ? 128 : 256);
}

IntegerCode::Bits bits_of(IntegerForm form) {
  if (form == IntegerForm::bits1) return IntegerCode::Bits::one;
  return form == IntegerForm::bits4 ? IntegerCode::Bits::four : IntegerCode::Bits::eight;
}

// A rank's part of a bucket.
struct Part {
  std::size_t offset = 0;  // elements
  std::size_t count = 0;
  std::vector<std::size_t> pieces;  // the sizes of those that have a scale each
};

// starts: those of the pieces in the whole bucket.
Part part_between(std::size_t begin, std::size_t end, const std::vector<std::size_t>& starts) {
  Part part{.offset = begin, .count = end - begin, .pieces = {}};
  auto next = std::upper_bound(starts.begin(), starts.end(), begin);
  for (std::size_t at = begin; at < end;) {
    const auto stop = next == starts.end() ? end : std::min(*next++, end);
    part.pieces.push_back(stop - at);
    at = stop;
  }
  return part;
}

std::vector<Part> divide(const GradBucket& bucket, std::size_t ranks, IntegerForm form) {
  constexpr std::size_t unit = 64;
  const auto starts = starts_of(bucket, form);
  const auto share = divide_up(bucket.span.count, ranks * unit) * unit;
  std::vector<Part> parts;
  for (std::size_t r = 0; r < ranks; ++r)
    parts.push_back(
        part_between(std::min(r * share, bucket.span.count), std::min((r + 1) * share, bucket.span.count), starts));
  return parts;
}

Span bytes_of(const RegisteredBuffer& buffer, std::size_t count) {
  return {buffer.data(), count, DType::uint8};
}

class IntegerHook final : public CommHook {
 public:
  IntegerHook(IntegerForm form, ProcessGroup& group) : form_(form), code_(bits_of(form)), group_(group) {}

  void prepare(std::span<const GradBucket> buckets) override {
    for (const auto& bucket : buckets) {
      plans_.push_back(plan_of(bucket));
      scratch_.resize(std::max(scratch_.size(), bucket.span.count));
    }
    if (feeds_back()) decoded_.resize(scratch_.size());
  }

  WorkPtr start(const GradBucket& bucket) override {
    auto& plan = plans_[bucket.index];
    convert(bucket.span, scratch_.data());
    for (std::size_t i = 0; i < plan.error.size(); ++i) scratch_[i] += plan.error[i];
    encode_parts(plan);
    record_error_of_parts(plan);
    auto exchanged = group_.all_to_allv(bytes_of(plan.codes, plan.codes_bytes), plan.code_counts,
                                        bytes_of(plan.received, plan.received_bytes), plan.received_counts);
    return stages_.add(std::move(exchanged), {[this, &plan] { return gather_averages(plan); },
                                              [this, &plan, span = bucket.span] {
                                                decode_parts(plan, scratch_.data());
                                                convert(scratch_.data(), span);
                                                return WorkPtr();
                                              }});
  }

  void cancel() override { stages_.cancel(); }

  std::vector<HookState> state() override {
    std::vector<HookState> all;
    for (std::size_t b = 0; b < plans_.size() && feeds_back(); ++b)
      all.push_back({(form_ == IntegerForm::bits4 ? "int4.bucket" : "onebit.bucket") + std::to_string(b) + ".error",
                     span_of(plans_[b].error)});
    return all;
  }

 private:
  struct CodePlan {
    std::vector<Part> parts;  // by rank
    Counts code_counts;       // by rank: bytes of its part's code
    Counts received_counts;   // by rank: bytes of the code of this rank's part, each time
    std::size_t codes_bytes = 0;
    std::size_t received_bytes = 0;
    RegisteredBuffer codes;     // those of all parts, from this rank; then the averages, from all
    RegisteredBuffer received;  // those of this rank's part, from all ranks
    RegisteredBuffer average;   // that of this rank's part
    std::vector<float> error;   // with error feedback: what this rank has still to send
  };

  bool feeds_back() const { return form_ == IntegerForm::bits4 || form_ == IntegerForm::bits1; }

  CodePlan plan_of(const GradBucket& bucket) const {
    CodePlan plan;
    const auto ranks = static_cast<std::size_t>(group_.size());
    plan.parts = divide(bucket, ranks, form_);
    for (const auto& part : plan.parts) {
      plan.code_counts.push_back(code_.bytes(part.pieces));
      plan.codes_bytes += plan.code_counts.back();
    }
    const auto own = plan.code_counts[own_rank()];
    plan.received_counts.assign(ranks, own);
    plan.received_bytes = own * ranks;
    plan.codes = group_.allocate(plan.codes_bytes);
    plan.received = group_.allocate(plan.received_bytes);
    plan.average = group_.allocate(own);
    if (feeds_back()) plan.error.resize(bucket.span.count);
    return plan;
  }

  std::size_t own_rank() const { return static_cast<std::size_t>(group_.rank()); }

  void encode_parts(const CodePlan& plan) const {
    auto* code = plan.codes.data();
    for (std::size_t r = 0; r < plan.parts.size(); ++r) {
      code_.encode(plan.parts[r].pieces, scratch_.data() + plan.parts[r].offset, code);
      code += plan.code_counts[r];
    }
  }

  WorkPtr gather_averages(CodePlan& plan) {
    const auto& part = plan.parts[own_rank()];
    auto* sums = scratch_.data();
    std::fill_n(sums, part.count, 0.0f);
    for (std::size_t r = 0; r < plan.parts.size(); ++r)
      code_.add(part.pieces, plan.received.data() + r * plan.received_counts[r], sums);
    const auto ranks = static_cast<float>(group_.size());
    for (std::size_t i = 0; i < part.count; ++i) sums[i] /= ranks;
    code_.encode(part.pieces, sums, plan.average.data());
    record_error_of_average(plan, part, sums);
    return group_.allgatherv(bytes_of(plan.average, plan.code_counts[own_rank()]),
                             bytes_of(plan.codes, plan.codes_bytes), plan.code_counts);
  }

  // Notes what the codes leave out of the scratch; nothing of values that are not finite.
  void record_error_of_parts(CodePlan& plan) {
    if (!feeds_back()) return;
    decode_parts(plan, decoded_.data());
    for (std::size_t i = 0; i < plan.error.size(); ++i) plan.error[i] = left_out(scratch_[i], decoded_[i]);
  }

  // Does the same for the average, which counts for as many ranks as there are: each adds its error to a sum.
  void record_error_of_average(CodePlan& plan, const Part& part, const float* average) {
    if (!feeds_back()) return;
    code_.decode(part.pieces, plan.average.data(), decoded_.data());
    const auto ranks = static_cast<float>(group_.size());
    for (std::size_t i = 0; i < part.count; ++i)
      plan.error[part.offset + i] += ranks * left_out(average[i], decoded_[i]);
  }

  static float left_out(float value, float sent) {
    const float error = value - sent;
    return std::isfinite(error) ? error : 0;
  }

  void decode_parts(const CodePlan& plan, float* values) const {
    const auto* code = plan.codes.data();
    for (std::size_t r = 0; r < plan.parts.size(); ++r) {
      code_.decode(plan.parts[r].pieces, code, values + plan.parts[r].offset);
      code += plan.code_counts[r];
    }
  }

  const IntegerForm form_;
  const IntegerCode code_;
  ProcessGroup& group_;
  std::vector<CodePlan> plans_;  // by bucket
  std::vector<float> scratch_;   // has the size of the largest bucket
  std::vector<float> decoded_;   // the same, with error feedback
  BucketStages stages_;
};

}  // namespace

std::unique_ptr<CommHook> make_integer_hook(IntegerForm form, ProcessGroup& group) {
  return std::make_unique<IntegerHook>(form, group);
}

}  // namespace ddprun
