#include "ddprun/worker/reducer/hooks/int8_hook.h"

#include <algorithm>
#include <vector>

#include "ddprun/worker/reducer/bucket_stages.h"
#include "ddprun/worker/reducer/hooks/float_conversion.h"
#include "ddprun/worker/reducer/hooks/int8_code.h"

namespace ddprun {
namespace {

// Where channels begin in a bucket, ascending, from 0 on. Padding belongs to the channel before it.
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

// A rank's part of a bucket.
struct Part {
  std::size_t offset = 0;  // elements
  std::size_t count = 0;
  std::vector<std::size_t> pieces;  // those that have a scale each: their sizes
};

// starts: of the pieces in the whole bucket.
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

std::vector<Part> divide(const GradBucket& bucket, std::size_t ranks, Int8Scale scale) {
  constexpr std::size_t unit = 64;
  const auto starts = scale == Int8Scale::channel ? channel_starts(bucket) : std::vector<std::size_t>{0};
  const auto share = (bucket.span.count + ranks * unit - 1) / (ranks * unit) * unit;
  std::vector<Part> parts;
  for (std::size_t r = 0; r < ranks; ++r)
    parts.push_back(
        part_between(std::min(r * share, bucket.span.count), std::min((r + 1) * share, bucket.span.count), starts));
  return parts;
}

Span bytes_of(const RegisteredBuffer& buffer, std::size_t count) {
  return {buffer.data(), count, DType::uint8};
}

class Int8Hook final : public CommHook {
 public:
  Int8Hook(Int8Scale scale, ProcessGroup& group) : scale_(scale), group_(group) {}

  void prepare(std::span<const GradBucket> buckets) override {
    for (const auto& bucket : buckets) {
      plans_.push_back(plan_of(bucket));
      scratch_.resize(std::max(scratch_.size(), bucket.span.count));
    }
  }

  WorkPtr start(const GradBucket& bucket) override {
    auto& plan = plans_[bucket.index];
    convert(bucket.span, scratch_.data());
    encode_parts(plan);
    auto exchanged = group_.all_to_allv(bytes_of(plan.codes, plan.codes_bytes), plan.code_counts,
                                        bytes_of(plan.received, plan.received_bytes), plan.received_counts);
    return stages_.add(std::move(exchanged), {[this, &plan] { return gather_averages(plan); },
                                              [this, &plan, span = bucket.span] {
                                                decode_parts(plan);
                                                convert(scratch_.data(), span);
                                                return WorkPtr();
                                              }});
  }

  void cancel() override { stages_.cancel(); }

 private:
  struct Plan {
    std::vector<Part> parts;  // by rank
    Counts code_counts;       // by rank: bytes of its part's code
    Counts received_counts;   // by rank: bytes of this rank's part's code, each time
    std::size_t codes_bytes = 0;
    std::size_t received_bytes = 0;
    RegisteredBuffer codes;     // of all parts, from this rank; then the averages, from all
    RegisteredBuffer received;  // of this rank's part, from all ranks
    RegisteredBuffer average;   // of this rank's part
  };

  Plan plan_of(const GradBucket& bucket) const {
    Plan plan;
    const auto ranks = static_cast<std::size_t>(group_.size());
    plan.parts = divide(bucket, ranks, scale_);
    for (const auto& part : plan.parts) {
      plan.code_counts.push_back(code_bytes(part.pieces));
      plan.codes_bytes += plan.code_counts.back();
    }
    const auto own = plan.code_counts[own_rank()];
    plan.received_counts.assign(ranks, own);
    plan.received_bytes = own * ranks;
    plan.codes = group_.allocate(plan.codes_bytes);
    plan.received = group_.allocate(plan.received_bytes);
    plan.average = group_.allocate(own);
    return plan;
  }

  std::size_t own_rank() const { return static_cast<std::size_t>(group_.rank()); }

  void encode_parts(const Plan& plan) const {
    auto* code = plan.codes.data();
    for (std::size_t r = 0; r < plan.parts.size(); ++r) {
      encode_int8(plan.parts[r].pieces, scratch_.data() + plan.parts[r].offset, code);
      code += plan.code_counts[r];
    }
  }

  WorkPtr gather_averages(const Plan& plan) {
    const auto& part = plan.parts[own_rank()];
    auto* sums = scratch_.data();
    std::fill_n(sums, part.count, 0.0f);
    for (std::size_t r = 0; r < plan.parts.size(); ++r)
      add_int8(part.pieces, plan.received.data() + r * plan.received_counts[r], sums);
    const auto ranks = static_cast<float>(group_.size());
    for (std::size_t i = 0; i < part.count; ++i) sums[i] /= ranks;
    encode_int8(part.pieces, sums, plan.average.data());
    return group_.allgatherv(bytes_of(plan.average, plan.code_counts[own_rank()]),
                             bytes_of(plan.codes, plan.codes_bytes), plan.code_counts);
  }

  void decode_parts(const Plan& plan) {
    const auto* code = plan.codes.data();
    for (std::size_t r = 0; r < plan.parts.size(); ++r) {
      decode_int8(plan.parts[r].pieces, code, scratch_.data() + plan.parts[r].offset);
      code += plan.code_counts[r];
    }
  }

  const Int8Scale scale_;
  ProcessGroup& group_;
  std::vector<Plan> plans_;     // by bucket
  std::vector<float> scratch_;  // of the largest bucket
  BucketStages stages_;
};

}  // namespace

std::unique_ptr<CommHook> make_int8_hook(Int8Scale scale, ProcessGroup& group) {
  return std::make_unique<Int8Hook>(scale, group);
}

}  // namespace ddprun
