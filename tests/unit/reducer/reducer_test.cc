#include "worker/reducer/reducer.h"

#include <span>
#include <string>

#include "common/error.h"
#include "worker/comm/operations/call.h"
#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"

using namespace ddprun;
using ddprun::testing::run_ranks;

namespace {

const std::vector<ParameterRef> model = {{"a", {20}}, {"b", {3, 4}}, {"c", {16}}, {"d", {1}}};
constexpr BucketLimits small_buckets{.first_bytes = 64, .bytes = 128};  // d | c b | a

std::span<float> gradient(const Reducer& reducer, std::size_t parameter) {
  return {static_cast<float*>(reducer.gradient_memory(parameter).get()), model[parameter].count()};
}

// Returns what rank's backward pass adds to element i of a parameter's gradient.
float contribution(int rank, std::size_t parameter, std::size_t i) {
  return static_cast<float>(rank + 1) * static_cast<float>(10 * parameter + i);
}

void accumulate(Reducer& reducer, int rank, std::size_t parameter) {
  auto values = gradient(reducer, parameter);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += contribution(rank, parameter, i);
}

// times is how often every rank has added its contribution; the average is over the ranks that did.
bool is_average(const Reducer& reducer, std::size_t parameter, int size, float times = 1) {
  const auto values = gradient(reducer, parameter);
  for (std::size_t i = 0; i < values.size(); ++i) {
    float sum = 0;
    for (int r = 0; r < size; ++r) sum += times * contribution(r, parameter, i);
    if (values[i] != sum / static_cast<float>(size)) return false;
  }
  return true;
}

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

// Records the order in which operations start; passes them on.
class RecordingGroup : public ProcessGroup {
 public:
  explicit RecordingGroup(ProcessGroup& below) : below_(below) {}
  int rank() const override { return below_.rank(); }
  int size() const override { return below_.size(); }
  std::string_view backend() const override { return "recording"; }
  WorkPtr start(const comm::Call& call) override {
    if (call.operation.kind == comm::OpKind::allreduce) counts.push_back(call.operation.count);
    return below_.start(call);
  }
  std::optional<Error> failure() const override { return below_.failure(); }
  void abort(const std::string& reason) override { below_.abort(reason); }

  std::vector<std::size_t> counts;

 private:
  ProcessGroup& below_;
};

}  // namespace

TEST_CASE("gradients become averages, whatever order they come in at each rank") {
  for (const int size : {1, 2, 3}) {
    run_ranks(size, [size](ProcessGroup& group) {
      Reducer reducer(group, model, {.limits = small_buckets});
      for (int pass = 1; pass <= 3; ++pass) {
        for (std::size_t step = 0; step < model.size(); ++step) {
          const auto p = (step * 3 + static_cast<std::size_t>(group.rank())) % model.size();
          for (auto& value : gradient(reducer, p)) value = 0;
          accumulate(reducer, group.rank(), p);
          reducer.mark_ready(p);
        }
        reducer.finalize();
        for (std::size_t p = 0; p < model.size(); ++p) require(is_average(reducer, p, size), "average");
      }
    });
  }
}

TEST_CASE("a bucket starts as soon as it and all before it are ready, while the pass goes on") {
  run_ranks(2, [](ProcessGroup& below) {
    RecordingGroup group(below);
    Reducer reducer(group, model, {.limits = small_buckets});
    const auto counts = [&] { return group.counts.size(); };
    reducer.mark_ready(0);
    require(counts() == 0, "a's bucket is the last");
    reducer.mark_ready(3);
    require(counts() == 1, "d's bucket starts at once");
    reducer.mark_ready(2);
    require(counts() == 1, "b is missing");
    reducer.mark_ready(1);
    require(counts() == 3, "c and b, then a");
    reducer.finalize();
    require(group.counts == std::vector<std::size_t>{16, 32, 32}, "in the plan's order");
  });
}

TEST_CASE("accumulated passes are reduced once, by the one that is marked") {
  run_ranks(2, [](ProcessGroup& below) {
    RecordingGroup group(below);
    Reducer reducer(group, model);
    for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
      for (std::size_t p = 0; p < model.size(); ++p) accumulate(reducer, group.rank(), p);
    }
    for (std::size_t p = 0; p < model.size(); ++p) reducer.mark_ready(p);
    reducer.finalize();
    require(group.counts.size() == 1, "one reduction");
    for (std::size_t p = 0; p < model.size(); ++p) require(is_average(reducer, p, 2, 3), "average of sums");
  });
}

TEST_CASE("a parameter that got no gradient is an error naming it") {
  run_ranks(2, [](ProcessGroup& group) {
    Reducer reducer(group, model, {.limits = small_buckets});
    reducer.mark_ready(3);
    reducer.mark_ready(0);
    try {
      reducer.finalize();
    } catch (const Error& error) {
      require(error.code() == Errc::usage, "usage");
      require(std::string(error.what()).find("did not reach b, c:") != std::string::npos, error.what());
      return;
    }
    require(false, "no error");
  });
}

TEST_CASE("with find_unused_parameters one rank's missing gradient counts as zero") {
  run_ranks(2, [](ProcessGroup& group) {
    Reducer reducer(group, model, {.limits = small_buckets, .find_unused_parameters = true});
    for (std::size_t p = 0; p < model.size(); ++p) {
      if (p == 2 && group.rank() == 0) continue;
      accumulate(reducer, group.rank(), p);
      reducer.mark_ready(p);
    }
    reducer.finalize();
    const auto c = gradient(reducer, 2);
    for (std::size_t i = 0; i < c.size(); ++i) require(c[i] == contribution(1, 2, i) / 2, "half of rank 1's");
    for (const std::size_t p : {0, 1, 3}) require(is_average(reducer, p, 2), "average");
  });
}

TEST_CASE("a gradient that becomes ready twice is an error naming the parameter, and ends the reducer's use") {
  run_ranks(1, [](ProcessGroup& group) {
    Reducer reducer(group, model);
    reducer.mark_ready(1);
    try {
      reducer.mark_ready(1);
      require(false, "no error");
    } catch (const Error& error) {
      require(std::string(error.what()).find("gradient of b became ready twice") != std::string::npos, error.what());
    }
    try {
      reducer.finalize();
      require(false, "no error");
    } catch (const Error& error) {
      require(error.code() == Errc::usage, "usage");
    }
  });
}

TEST_CASE("the gradient's memory outlives the reducer") {
  run_ranks(1, [](ProcessGroup& group) {
    std::shared_ptr<void> memory;
    {
      const Reducer reducer(group, model);
      memory = reducer.gradient_memory(1);
      static_cast<float*>(memory.get())[0] = 5;
    }
    require(static_cast<float*>(memory.get())[0] == 5, "value");
  });
}

TEST_CASE("the allreduces of a pass are recorded once for each bucket, while that is asked for") {
  run_ranks(2, [](ProcessGroup& group) {
    Reducer reducer(group, model, {.limits = small_buckets});
    std::vector<Transfer> transfers;
    const auto pass = [&] {
      for (std::size_t p = model.size(); p-- > 0;) {
        accumulate(reducer, group.rank(), p);
        reducer.mark_ready(p);
      }
      reducer.finalize();
    };
    pass();
    require(transfers.empty(), "nothing is recorded unless asked for");
    reducer.record_transfers(&transfers);
    pass();
    pass();
    require(transfers.size() == 2 * reducer.buckets().size(), "one for each bucket and pass");
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      require(transfers[i].bucket == i % reducer.buckets().size(), "in the order of the buckets");
      require(transfers[i].end >= transfers[i].start, "ends after its start");
      if (i > 0) require(transfers[i].start >= transfers[i - 1].start, "in the order of the starts");
    }
    reducer.record_transfers(nullptr);
    pass();
    require(transfers.size() == 2 * reducer.buckets().size(), "nothing more is recorded");
    require(reducer.starting().count() > 0, "starting takes time");
  });
}
