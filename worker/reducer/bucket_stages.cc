#include "worker/reducer/bucket_stages.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "common/error.h"

namespace ddprun {

// The buckets of a pass, and their progress.
class BucketStages::Queue {
 public:
  void add(WorkPtr first, std::vector<Stage> stages) { buckets_.push_back({std::move(first), std::move(stages)}); }

  // Resumes where a deadline has interrupted it.
  void drain(Deadline deadline) {
    if (error_) throw Error(*error_);
    try {
      while (at_ < buckets_.size()) {
        advance(buckets_[at_], deadline);
        if (++at_ == buckets_.size()) begin_next_stage();
      }
    } catch (const Error& error) {
      if (!(error.code() == Errc::timeout && deadline.expired())) error_ = error;
      throw;
    }
  }

  void cancel() {
    for (const auto& bucket : buckets_) {
      try {
        if (bucket.work) bucket.work->wait();
      } catch (const Error&) {
        // The group has reported it already.
      }
    }
    if (!buckets_.empty() && !error_) error_ = Error(Errc::aborted, "the pass was given up at this rank");
    buckets_.clear();
    at_ = 0;
  }

  bool drained() const { return buckets_.empty(); }
  const std::optional<Error>& error() const { return error_; }

 private:
  struct Bucket {
    WorkPtr work;
    std::vector<Stage> stages;
  };

  void advance(Bucket& bucket, Deadline deadline) const {
    if (bucket.work) bucket.work->wait(deadline);
    bucket.work = stage_ < bucket.stages.size() ? bucket.stages[stage_]() : nullptr;
  }

  void begin_next_stage() {
    ++stage_;
    at_ = 0;
    const bool complete = std::ranges::all_of(
        buckets_, [&](const auto& bucket) { return !bucket.work && stage_ >= bucket.stages.size(); });
    if (!complete) return;
    buckets_.clear();
    stage_ = 0;
  }

  std::vector<Bucket> buckets_;
  std::size_t stage_ = 0;
  std::size_t at_ = 0;  // the bucket whose turn it is
  std::optional<Error> error_;
};

class BucketStages::BucketWork final : public Work {
 public:
  explicit BucketWork(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}

  void wait(Deadline deadline) override { queue_->drain(deadline); }
  bool done() const override { return queue_->drained() || queue_->error(); }
  std::optional<Error> error() const override { return queue_->error(); }

 private:
  const std::shared_ptr<Queue> queue_;
};

BucketStages::BucketStages() : queue_(std::make_shared<Queue>()) {}

WorkPtr BucketStages::add(WorkPtr first, std::vector<Stage> stages) {
  queue_->add(std::move(first), std::move(stages));
  return std::make_shared<BucketWork>(queue_);
}

void BucketStages::cancel() {
  queue_->cancel();
}

}  // namespace ddprun
