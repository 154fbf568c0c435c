#include "worker/reducer/comm_hook.h"

#include <algorithm>
#include <string>

#include "common/error.h"
#include "worker/reducer/bucket_stages.h"
#include "worker/reducer/reducer.h"
#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"

using namespace ddprun;
using ddprun::testing::run_ranks;

namespace {

const std::vector<ParameterRef> model = {{"a", {20}}, {"b", {3, 4}}, {"c", {16}}, {"d", {1}}};
constexpr BucketLimits small_buckets{.first_bytes = 64, .bytes = 128};  // d | c b | a

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

void pass(Reducer& reducer) {
  for (std::size_t p = model.size(); p-- > 0;) reducer.mark_ready(p);
  reducer.finalize();
}

std::string text_of(const GradBucket& bucket) {
  std::string text = std::to_string(bucket.index) + (bucket.last ? " last" : "");
  for (const auto& slice : bucket.slices) {
    text += " " + std::string(slice.name) + "@" + std::to_string(slice.offset) + "[";
    for (const auto extent : slice.shape) text += std::to_string(extent) + ",";
    text += "]" + std::to_string(slice.count);
  }
  return text;
}

// A work that has ended, perhaps with an error.
class EndedWork : public Work {
 public:
  explicit EndedWork(std::optional<Error> error = {}) : error_(std::move(error)) {}
  void wait(Deadline) override {
    if (error_) throw Error(*error_);
  }
  bool done() const override { return true; }
  std::optional<Error> error() const override { return error_; }

 private:
  const std::optional<Error> error_;
};

// A work that ends on request, and times out before.
class PendingWork : public EndedWork {
 public:
  void wait(Deadline) override {
    if (!ended) throw Error(Errc::timeout, "not yet");
  }
  bool done() const override { return ended; }
  bool ended = false;
};

}  // namespace

TEST_CASE("a hook gets every bucket of a pass in order, described, and its result is what the gradients are") {
  run_ranks(2, [](ProcessGroup& group) {
    Reducer reducer(group, model, {.limits = small_buckets});
    std::vector<std::string> seen;
    reducer.set_hook(make_comm_hook([&](const GradBucket& bucket) {
      seen.push_back(text_of(bucket));
      auto* values = static_cast<float*>(bucket.span.data);
      std::fill(values, values + bucket.span.count, static_cast<float>(bucket.index));
      return std::make_shared<EndedWork>();
    }));
    pass(reducer);
    require(seen == std::vector<std::string>{"0 d@0[1,]1", "1 c@0[16,]16 b@16[3,4,]12", "2 last a@0[20,]20"}, seen[1]);
    for (const auto& [parameter, bucket] : {std::pair{0, 2.0f}, {1, 1.0f}, {2, 1.0f}, {3, 0.0f}}) {
      const auto memory = reducer.gradient_memory(static_cast<std::size_t>(parameter));
      require(*static_cast<float*>(memory.get()) == bucket, "the hook's result");
    }
  });
}

TEST_CASE("a hook is not exchanged within a pass") {
  run_ranks(1, [](ProcessGroup& group) {
    Reducer reducer(group, model, {.limits = small_buckets});
    reducer.mark_ready(3);
    try {
      reducer.set_hook(make_comm_hook([](const GradBucket&) { return std::make_shared<EndedWork>(); }));
      require(false, "no error");
    } catch (const Error& error) {
      require(error.code() == Errc::usage, error.what());
    }
  });
}

TEST_CASE("a stage of all buckets runs before the next stage of any, in the order of the buckets, at the first wait") {
  BucketStages stages;
  std::string order;
  const auto stage = [&](const char* name, bool more) {
    return [&order, name, more]() -> WorkPtr {
      order += name;
      return more ? std::make_shared<EndedWork>() : nullptr;
    };
  };
  for (int pass = 0; pass < 2; ++pass) {
    order.clear();
    const auto a = stages.add(std::make_shared<EndedWork>(), {stage("a1 ", true), stage("a2 ", false)});
    const auto b = stages.add(nullptr, {stage("b1 ", false)});
    const auto c =
        stages.add(std::make_shared<EndedWork>(), {stage("c1 ", true), stage("c2 ", true), stage("c3 ", false)});
    CHECK(order.empty());
    CHECK_FALSE(a->done());
    b->wait();
    CHECK(order == "a1 b1 c1 a2 c2 c3 ");
    CHECK(a->done());
    CHECK(c->done());
    a->wait();
    CHECK(order == "a1 b1 c1 a2 c2 c3 ");
  }
}

TEST_CASE("a wait that timed out is resumed where it was") {
  BucketStages stages;
  std::string order;
  const auto pending = std::make_shared<PendingWork>();
  const auto first = stages.add(std::make_shared<EndedWork>(), {[&] { return order += "a", WorkPtr(); }});
  const auto second = stages.add(pending, {[&] { return order += "b", WorkPtr(); }});
  CHECK_THROWS_AS(second->wait(Deadline::in(Deadline::Duration(0))), Error);
  CHECK(order == "a");
  CHECK_FALSE(second->error());
  pending->ended = true;
  first->wait();
  CHECK(order == "ab");
}

TEST_CASE("the first failure of a stage is the error of all works, and nothing runs after it") {
  BucketStages stages;
  bool ran = false;
  const auto first = stages.add(std::make_shared<EndedWork>(Error(Errc::peer_lost, "rank 1 is lost")), {});
  const auto second = stages.add(nullptr, {[&] { return ran = true, WorkPtr(); }});
  for (const auto& work : {second, first, second}) {
    CHECK_THROWS_WITH(work->wait(), "rank 1 is lost");
    CHECK(work->done());
  }
  CHECK_FALSE(ran);
}

TEST_CASE("works of a pass that was cancelled run no stage and end as aborted") {
  BucketStages stages;
  bool ran = false;
  const auto work = stages.add(std::make_shared<EndedWork>(), {[&] { return ran = true, WorkPtr(); }});
  stages.cancel();
  CHECK_THROWS_AS(work->wait(), Error);
  CHECK(work->error()->code() == Errc::aborted);
  CHECK_FALSE(ran);
}

TEST_CASE("a reducer that ends within a pass runs no further stage of its hook") {
  run_ranks(1, [](ProcessGroup& group) {
    class Staged : public CommHook {
     public:
      explicit Staged(bool& ran) : ran_(ran) {}
      WorkPtr start(const GradBucket&) override {
        return stages_.add(std::make_shared<EndedWork>(), {[this] { return ran_ = true, WorkPtr(); }});
      }
      void cancel() override { stages_.cancel(); }

     private:
      bool& ran_;
      BucketStages stages_;
    };
    bool ran = false;
    {
      Reducer reducer(group, model, {.limits = small_buckets});
      reducer.set_hook(std::make_unique<Staged>(ran));
      reducer.mark_ready(3);
    }
    require(!ran, "a stage ran");
  });
}
