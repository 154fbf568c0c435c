#include "worker/reducer/hooks/top_k_hook.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/float16.h"
#include "worker/reducer/bucket_stages.h"
#include "worker/reducer/hooks/float_conversion.h"

namespace ddprun {
namespace {

struct Element {
  std::uint32_t place;  // its index in the bucket
  float value;
};

// Compares values as bits: a NaN is greater than infinity, which is greater than all numbers.
std::uint32_t magnitude(float value) {
  return bits_as<std::uint32_t>(value) & 0x7fffffff;
}

class TopKHook final : public CommHook {
 public:
  TopKHook(double fraction, ProcessGroup& group) : fraction_(fraction), group_(group) {}

  void prepare(std::span<const GradBucket> buckets) override {
    for (const auto& bucket : buckets) {
      auto& added = buckets_.emplace_back();
      added.error.resize(bucket.span.count);
      added.count = sent_of(bucket.span.count);
      added.own = group_.allocate(added.count * sizeof(Element));
      added.all = group_.allocate(added.count * sizeof(Element) * static_cast<std::size_t>(group_.size()));
      scratch_.resize(std::max(scratch_.size(), bucket.span.count));
      magnitudes_.resize(scratch_.size());
    }
  }

  WorkPtr start(const GradBucket& bucket) override {
    auto& own = buckets_[bucket.index];
    convert(bucket.span, scratch_.data());
    for (std::size_t i = 0; i < own.error.size(); ++i) own.error[i] += scratch_[i];
    take_largest(own);
    auto gathered = group_.allgather(bytes_of(own.own), bytes_of(own.all));
    return stages_.add(std::move(gathered), {[this, &own, span = bucket.span] {
                         average(own, span);
                         return WorkPtr();
                       }});
  }

  void cancel() override { stages_.cancel(); }

  std::vector<HookState> state() override {
    std::vector<HookState> all;
    for (std::size_t b = 0; b < buckets_.size(); ++b)
      all.push_back({"topk.bucket" + std::to_string(b) + ".error", span_of(buckets_[b].error)});
    return all;
  }

 private:
  struct Bucket {
    std::vector<float> error;  // between passes what is still to be sent
    std::size_t count = 0;     // the number of elements that a rank sends
    RegisteredBuffer own, all;
  };

  static Span bytes_of(const RegisteredBuffer& buffer) { return {buffer.data(), buffer.bytes(), DType::uint8}; }

  std::size_t sent_of(std::size_t elements) const {
    return std::clamp<std::size_t>(static_cast<std::size_t>(std::ceil(fraction_ * static_cast<double>(elements))),
                                   std::min<std::size_t>(elements, 1), elements);
  }

  // Moves the largest from the error to this rank's message: of equal ones the first, so that every run is the same.
  void take_largest(Bucket& bucket) {
    if (bucket.count == 0) return;
    const auto end = magnitudes_.begin() + std::ssize(bucket.error);
    std::ranges::transform(bucket.error, magnitudes_.begin(), magnitude);
    const auto smallest = magnitudes_.begin() + static_cast<std::ptrdiff_t>(bucket.count) - 1;
    std::nth_element(magnitudes_.begin(), smallest, end, std::greater<>());
    const auto least = *smallest;
    std::size_t equal = static_cast<std::size_t>(std::count(magnitudes_.begin(), smallest + 1, least));
    auto next = bucket.own.as<Element>().begin();
    for (std::size_t i = 0; i < bucket.error.size(); ++i) {
      float& value = bucket.error[i];
      const auto size = magnitude(value);
      if (size < least || (size == least && equal == 0)) {
        if (!std::isfinite(value)) value = 0;  // those that are sent say that this pass is lost
        continue;
      }
      if (size == least) --equal;
      *next++ = {static_cast<std::uint32_t>(i), value};
      value = 0;
    }
  }

  void average(const Bucket& bucket, Span gradients) {
    std::fill_n(scratch_.begin(), gradients.count, 0.0f);
    for (const Element& each : bucket.all.as<Element>()) scratch_[each.place] += each.value;
    const auto ranks = static_cast<float>(group_.size());
    for (std::size_t i = 0; i < gradients.count; ++i) scratch_[i] /= ranks;
    convert(scratch_.data(), gradients);
  }

  const double fraction_;
  ProcessGroup& group_;
  std::vector<Bucket> buckets_;
  std::vector<float> scratch_;  // has the size of the largest bucket
  std::vector<std::uint32_t> magnitudes_;
  BucketStages stages_;
};

}  // namespace

std::unique_ptr<CommHook> make_top_k_hook(double fraction, ProcessGroup& group) {
  if (!(fraction > 0 && fraction <= 1))
    throw make_error(Errc::usage, "topk: a fraction of {} is not above 0 and at most 1", fraction);
  return std::make_unique<TopKHook>(fraction, group);
}

}  // namespace ddprun
