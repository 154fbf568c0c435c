#include "ddprun/worker/reducer/shard_tree.h"

#include <cstring>
#include <map>
#include <numeric>
#include <random>

#include "ddprun/worker/reducer/hooks/shard_sum_hook.h"
#include "ddprun/worker/reducer/reducer.h"
#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"

using namespace ddprun;
using ddprun::testing::run_ranks;

namespace {

using Values = std::vector<float>;
using Subtrees = std::vector<Subtree>;

constexpr BucketLimits limits{.first_bytes = 64, .bytes = 8192};
const std::vector<ParameterRef> model = {{"bias", {37}}, {"weight", {40, 50}}, {"scalar", {}}};

// Returns numbers of very different sizes, so that nearly every order of additions has a sum of its own.
Values numbers(int shard, std::size_t count) {
  std::mt19937_64 random(static_cast<std::uint64_t>(shard) + 1);
  Values values(count);
  for (auto& value : values)
    value = std::ldexp(static_cast<float>(random() % 2001) - 1000.0f, static_cast<int>(random() % 20));
  return values;
}

bool same_bits(const Values& a, const Values& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Returns the sum of a node of the tree by its definition: that of its left child, plus that of its right child if that
// has shards.
float sum_of_node(const std::vector<float>& leaves, std::size_t begin, std::size_t size) {
  if (size == 1) return leaves[begin];
  const auto middle = begin + size / 2;
  const float left = sum_of_node(leaves, begin, size / 2);
  return middle < leaves.size() ? left + sum_of_node(leaves, middle, size / 2) : left;
}

Values tree_sum(int shards, std::size_t count) {
  std::vector<Values> all;
  for (int shard = 0; shard < shards; ++shard) all.push_back(numbers(shard, count));
  std::size_t size = 1;
  while (size < all.size()) size *= 2;
  Values sums;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<float> leaves;
    for (const auto& values : all) leaves.push_back(values[i]);
    sums.push_back(sum_of_node(leaves, 0, size));
  }
  return sums;
}

void write(const Reducer& reducer, const Values& values) {
  std::size_t at = 0;
  for (std::size_t p = 0; p < model.size(); ++p) {
    std::memcpy(reducer.gradient_memory(p).get(), values.data() + at, model[p].count() * sizeof(float));
    at += model[p].count();
  }
}

Values read(const Reducer& reducer) {
  Values all;
  for (std::size_t p = 0; p < model.size(); ++p) {
    const auto memory = reducer.gradient_memory(p);
    const auto* values = static_cast<const float*>(memory.get());
    all.insert(all.end(), values, values + model[p].count());
  }
  return all;
}

std::size_t model_count() {
  std::size_t count = 0;
  for (const auto& parameter : model) count += parameter.count();
  return count;
}

// Makes a rank's passes of a step with so many shards filled, and returns the gradients after it.
Values step(Reducer& reducer, ShardSumHook& hook, ShardRange own, int filled) {
  hook.begin_step(filled);
  own = below(own, filled);
  for (int shard = own.begin; shard + 1 < own.end; ++shard) {
    write(reducer, numbers(shard, model_count()));
    hook.keep_pass();
  }
  if (own.count() == 0) {
    reducer.join_pass();
    return read(reducer);
  }
  write(reducer, numbers(own.end - 1, model_count()));
  for (std::size_t p = model.size(); p-- > 0;) reducer.mark_ready(p);
  reducer.finalize();
  return read(reducer);
}

}  // namespace

TEST_CASE("ranks have all shards, in order and as evenly as possible") {
  for (const int shards : {1, 5, 8, 12}) {
    for (int ranks = 1; ranks <= 13; ++ranks) {
      int next = 0;
      for (int r = 0; r < ranks; ++r) {
        const auto own = shards_of_rank(shards, r, ranks);
        CHECK(own.begin == next);
        CHECK(own.count() >= shards / ranks);
        CHECK(own.count() <= (shards + ranks - 1) / ranks);
        next = own.end;
      }
      CHECK(next == shards);
    }
  }
}

TEST_CASE("a range of shards is made up of the fewest subtrees") {
  CHECK(subtrees_of({0, 8}) == Subtrees{{0, 8}});
  CHECK(subtrees_of({4, 8}) == Subtrees{{4, 4}});
  CHECK(subtrees_of({2, 5}) == Subtrees{{2, 2}, {4, 1}});
  CHECK(subtrees_of({1, 8}) == Subtrees{{1, 1}, {2, 2}, {4, 4}});
  CHECK(subtrees_of({0, 7}) == Subtrees{{0, 4}, {4, 2}, {6, 1}});
  CHECK(subtrees_of({3, 3}).empty());
}

TEST_CASE("the sums of a rank's shards are those of its subtrees") {
  ShardSums sums;
  for (int round = 0; round < 2; ++round) {  // the second one uses the memory of the first
    sums.clear();
    for (int shard = 1; shard < 8; ++shard) sums.add(shard, Values{static_cast<float>(shard), 1});
    const auto all = sums.sums();
    REQUIRE(all.size() == 3);
    CHECK(all[2].subtree == Subtree{4, 4});
    CHECK(all[0].values[0] == 1);
    CHECK(all[1].values[0] == 2 + 3);
    CHECK(all[2].values[0] == 4 + 5 + 6 + 7);
    CHECK(all[2].values[1] == 4);
  }
}

TEST_CASE("gradients of shards have the sum of the tree with any number of ranks, also in short steps") {
  for (const int shards : {1, 6, 8}) {
    for (const int ranks : {1, 2, 3, 4, 5, 8}) {
      INFO(shards << " shards, " << ranks << " ranks");
      std::vector<std::map<int, Values>> results(static_cast<std::size_t>(ranks));
      run_ranks(ranks, [&](ProcessGroup& group) {
        Reducer reducer(group, model, {.limits = limits});
        auto owned = std::make_unique<ShardSumHook>(shards, group);
        auto& hook = *owned;
        reducer.set_hook(std::move(owned));
        for (const int filled : {shards, 1, shards - 1, shards})
          if (filled > 0)
            results[static_cast<std::size_t>(group.rank())][filled] =
                step(reducer, hook, shards_of_rank(shards, group.rank(), group.size()), filled);
      });
      for (const auto& by_filled : results)
        for (const auto& [filled, values] : by_filled) CHECK(same_bits(values, tree_sum(filled, model_count())));
    }
  }
}

TEST_CASE("an order of additions that is not the tree's has another sum") {
  const auto count = model_count();
  Values in_turn(count);
  for (int shard = 0; shard < 8; ++shard) {
    const auto values = numbers(shard, count);
    for (std::size_t i = 0; i < count; ++i) in_turn[i] += values[i];
  }
  CHECK_FALSE(same_bits(in_turn, tree_sum(8, count)));
}
