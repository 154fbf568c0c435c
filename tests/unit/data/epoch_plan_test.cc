#include "worker/data/epoch_plan.h"

#include <map>
#include <numeric>

#include "worker/data/distributed_sampler.h"
#include "tests/support/catch.h"

using namespace ddprun::data;

namespace {

std::vector<std::int64_t> ascending(std::int64_t size) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<std::vector<std::int64_t>> split(const BatchList& list) {
  std::vector<std::vector<std::int64_t>> batches;
  std::int64_t begin = 0;
  for (const auto end : list.ends) {
    batches.emplace_back(list.indices.begin() + begin, list.indices.begin() + end);
    begin = end;
  }
  CHECK(begin == std::ssize(list.indices));
  return batches;
}

BatchList batches_of_rank(const EpochPlan& plan, const std::vector<std::int64_t>& order, std::int64_t done, int rank,
                          std::int64_t batch_size) {
  return batches_of_parts(plan, order, done, {rank}, batch_size);
}

}  // namespace

TEST_CASE("a step's samples are dealt to the ranks in turn, and cut into batches") {
  const EpochPlan plan{.size = 17, .step_samples = 10, .parts = 3};
  CHECK(plan.share(10, 0) == 4);
  CHECK(plan.share(10, 1) == 3);
  CHECK(plan.share(10, 2) == 3);
  using Batches = std::vector<std::vector<std::int64_t>>;
  CHECK(split(batches_of_rank(plan, ascending(17), 0, 0, 3)) == Batches{{0, 3, 6}, {9}, {10, 13, 16}});
  CHECK(split(batches_of_rank(plan, ascending(17), 0, 1, 3)) == Batches{{1, 4, 7}, {11, 14}});
  CHECK(split(batches_of_rank(plan, ascending(17), 0, 2, 3)) == Batches{{2, 5, 8}, {12, 15}});
  CHECK(split(batches_of_rank(plan, ascending(17), 15, 0, 3)) == Batches{{15}});
  CHECK(split(batches_of_rank(plan, ascending(17), 15, 2, 3)).empty());  // there are two samples for three ranks
}

TEST_CASE("a rank with several parts has the batches of one part after those of the other, in each step") {
  const EpochPlan plan{.size = 17, .step_samples = 10, .parts = 5};
  using Batches = std::vector<std::vector<std::int64_t>>;
  CHECK(split(batches_of_parts(plan, ascending(17), 0, {2, 3, 4}, 4)) ==
        Batches{{2, 7}, {3, 8}, {4, 9}, {12}, {13}, {14}});
  CHECK(split(batches_of_parts(plan, ascending(17), 0, {2, 3, 4}, 1)).size() == 9);
  CHECK(split(batches_of_parts(plan, ascending(17), 15, {1, 2, 3, 4}, 4)) == Batches{{16}});
  CHECK(split(batches_of_parts(plan, ascending(17), 0, {}, 4)).empty());
}

TEST_CASE("in the first step a rank may have other parts than in those that follow") {
  const EpochPlan plan{.size = 17, .step_samples = 10, .parts = 5};
  using Batches = std::vector<std::vector<std::int64_t>>;
  const std::vector<int> first{4, 0};
  CHECK(split(batches_of_parts(plan, ascending(17), 0, {2}, 4, first)) == Batches{{4, 9}, {0, 5}, {12}});
  CHECK(split(batches_of_parts(plan, ascending(17), 0, {2}, 4, std::vector<int>{})) == Batches{{12}});
}

TEST_CASE("by shares each rank has a range of a step's samples, and of a short step in proportion") {
  const EpochPlan plan{.size = 15, .step_samples = 10, .parts = 3, .shares = {6, 1, 3}};
  using Batches = std::vector<std::vector<std::int64_t>>;
  CHECK(split(batches_of_rank(plan, ascending(15), 0, 0, 4)) == Batches{{0, 1, 2, 3}, {4, 5}, {10, 11, 12}});
  CHECK(split(batches_of_rank(plan, ascending(15), 0, 1, 4)) == Batches{{6}});  // 3.5 rounds down to where it begins
  CHECK(split(batches_of_rank(plan, ascending(15), 0, 2, 4)) == Batches{{7, 8, 9}, {13, 14}});
  for (std::int64_t samples = 0; samples <= 10; ++samples)
    CHECK(plan.share(samples, 0) + plan.share(samples, 1) + plan.share(samples, 2) == samples);
}

TEST_CASE("where the sizes divide, every rank has the samples of PyTorch's DistributedSampler") {
  const auto order = epoch_order(240, 5, 2, true);
  for (const int world : {1, 2, 3, 4}) {
    for (int rank = 0; rank < world; ++rank) {
      const EpochPlan plan{.size = 240, .step_samples = 12 * world, .parts = world};
      CHECK(batches_of_rank(plan, order, 0, rank, 12).indices ==
            distributed_indices({.size = 240, .world_size = world, .rank = rank, .seed = 5, .epoch = 2}));
    }
  }
}

TEST_CASE("from any position the rest of the epoch is trained once, with any number of ranks") {
  for (const std::int64_t size : {1, 7, 100}) {
    for (std::int64_t done = 0; done <= size; ++done) {
      for (const int world : {1, 2, 3, 5}) {
        for (const std::int64_t step_samples : {1, 3, 7, 200}) {
          const EpochPlan plan{.size = size, .step_samples = step_samples, .parts = world};
          std::map<std::int64_t, int> times;
          for (int rank = 0; rank < world; ++rank)
            for (const auto index : batches_of_rank(plan, ascending(size), done, rank, 2).indices) ++times[index];
          if (std::ssize(times) != size - done) FAIL("left out: size " << size << ", done " << done);
          for (const auto& [index, count] : times)
            if (count != 1 || index < done) FAIL("sample " << index << " " << count << " times, done " << done);
        }
      }
    }
  }
}

TEST_CASE("the samples that do not divide are left out where that is asked for, whatever is done already") {
  const EpochPlan plan{.size = 100, .step_samples = 30, .parts = 3, .divisor = 3};
  CHECK(plan.left(0) == 99);
  CHECK(plan.left(30) == 69);
  CHECK(plan.samples_at(90) == 9);
  CHECK(plan.left(99) == 0);
  CHECK(plan.left(50) == 48);
  CHECK(plan.left(200) == 0);
  CHECK(plan.steps_left(0) == 4);
}
