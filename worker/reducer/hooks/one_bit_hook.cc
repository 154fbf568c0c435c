#include "worker/reducer/hooks/one_bit_hook.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "worker/reducer/bucket_stages.h"
#include "worker/reducer/hooks/allreduce_hook.h"
#include "worker/reducer/hooks/float_conversion.h"
#include "worker/reducer/hooks/integer_hook.h"

namespace ddprun {
namespace {

class OneBitHook final : public CommHook {
 public:
  OneBitHook(const OneBitOptions& options, ProcessGroup& group)
      : freeze_step_(options.freeze_step),
        beta1_(static_cast<float>(options.beta1)),
        beta2_(static_cast<float>(options.beta2)),
        limit_(static_cast<float>(1 / std::sqrt(1 - std::pow(options.beta2, static_cast<double>(freeze_step_))))),
        average_(make_allreduce_hook(group)),
        signs_(make_integer_hook(IntegerForm::bits1, group)) {}

  void prepare(std::span<const GradBucket> buckets) override {
    for (const auto& bucket : buckets) {
      averages_.emplace_back(bucket.span.count);
      scratch_.resize(std::max(scratch_.size(), bucket.span.count));
    }
    average_->prepare(buckets);
    signs_->prepare(buckets);
  }

  WorkPtr start(const GradBucket& bucket) override {
    const bool compresses = passes_[0] >= freeze_step_;
    if (bucket.last) ++passes_[0];
    auto& averages = averages_[bucket.index];
    if (compresses) add_to_momentum(bucket.span, averages);
    return stages_.add((compresses ? signs_ : average_)->start(bucket),
                       {[this, compresses, span = bucket.span, &averages] {
                         compresses ? take_momentum(span, averages) : follow(span, averages);
                         return WorkPtr();
                       }});
  }

  void cancel() override {
    average_->cancel();
    signs_->cancel();
    stages_.cancel();
  }

  std::vector<HookState> state() override {
    auto all = signs_->state();
    all.push_back({"onebit.passes", span_of(passes_)});
    for (std::size_t b = 0; b < averages_.size(); ++b) {
      const auto name = "onebit.bucket" + std::to_string(b);
      all.push_back({name + ".momentum", span_of(averages_[b].momentum)});
      all.push_back({name + ".square", span_of(averages_[b].square)});
    }
    return all;
  }

 private:
  // The averages of the Adam, without its corrections.
  struct Averages {
    explicit Averages(std::size_t count) : momentum(count), square(count) {}
    std::vector<float> momentum, square;
  };

  void follow(Span gradient, Averages& averages) {
    convert(gradient, scratch_.data());
    for (std::size_t i = 0; i < averages.momentum.size(); ++i) {
      const float g = scratch_[i];
      if (!std::isfinite(g)) continue;
      averages.momentum[i] = beta1_ * averages.momentum[i] + (1 - beta1_) * g;
      averages.square[i] = beta2_ * averages.square[i] + (1 - beta2_) * (g * g);
    }
  }

  // Turns this rank's gradient into what the momentum would be by it alone, divided by the root.
  void add_to_momentum(Span gradient, const Averages& averages) {
    convert(gradient, scratch_.data());
    for (std::size_t i = 0; i < averages.momentum.size(); ++i) {
      const float root = std::sqrt(averages.square[i]);
      const float momentum = beta1_ * averages.momentum[i] + (1 - beta1_) * scratch_[i];
      scratch_[i] = root > 0 ? momentum / root : 0;
    }
    convert(scratch_.data(), gradient);
  }

  // Turns the momentum of all, divided by the root, into the gradient that leads to it.
  void take_momentum(Span divided, Averages& averages) {
    convert(divided, scratch_.data());
    for (std::size_t i = 0; i < averages.momentum.size(); ++i) {
      const float next = std::clamp(scratch_[i], -limit_, limit_) * std::sqrt(averages.square[i]);
      const float gradient = (next - beta1_ * averages.momentum[i]) / (1 - beta1_);
      if (std::isfinite(next)) averages.momentum[i] = next;
      scratch_[i] = gradient;
    }
    convert(scratch_.data(), divided);
  }

  const std::int64_t freeze_step_;
  const float beta1_, beta2_;
  const float limit_;  // the momentum of equal gradients, divided by the root of their second average
  const std::unique_ptr<CommHook> average_, signs_;
  std::vector<Averages> averages_;       // by bucket
  std::vector<std::int64_t> passes_{0};  // one number
  std::vector<float> scratch_;           // has the size of the largest bucket
  BucketStages stages_;
};

}  // namespace

std::unique_ptr<CommHook> make_one_bit_hook(const OneBitOptions& options, ProcessGroup& group) {
  return std::make_unique<OneBitHook>(options, group);
}

}  // namespace ddprun
