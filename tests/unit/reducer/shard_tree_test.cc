#include "worker/reducer/shard_tree.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <random>

#include "worker/reducer/hooks/shard_sum_hook.h"
#include "worker/reducer/reducer.h"
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

// Makes a rank's passes of a step with so many shards filled, and returns the gradients after it. may_pass: whether the
// pass of a shard is made; if not, the step ends there, as if another rank was lost.
Values step(
    Reducer& reducer, ShardSumHook& hook, std::int64_t number, int filled,
    const std::function<bool(int shard)>& may_pass = [](int) { return true; }) {
  const auto shards = hook.begin_step(number, filled);
  if (shards.empty()) {
    reducer.join_pass();
    return read(reducer);
  }
  for (const int shard : shards) {
    if (!may_pass(shard)) return {};
    hook.begin_shard(shard);
    write(reducer, numbers(shard, model_count()));
    hook.add_loss(shard);
    if (shard != shards.back()) hook.keep_pass();
  }
  for (std::size_t p = model.size(); p-- > 0;) reducer.mark_ready(p);
  reducer.finalize();
  return read(reducer);
}

// A rank's reducer with its hook.
struct Summing {
  Summing(int shards, ShardGradients& gradients, ProcessGroup& group) : reducer(group, model, {.limits = limits}) {
    auto owned = std::make_unique<ShardSumHook>(shards, gradients, group);
    hook = owned.get();
    reducer.set_hook(std::move(owned));
  }
  Reducer reducer;
  ShardSumHook* hook;
};

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

TEST_CASE("a rank's shards become the fewest subtrees") {
  CHECK(subtrees_of({.shards = {0, 1, 2, 3, 4, 5, 6, 7}}) == Subtrees{{0, 8}});
  CHECK(subtrees_of({.shards = {4, 5, 6, 7}}) == Subtrees{{4, 4}});
  CHECK(subtrees_of({.shards = {2, 3, 4}}) == Subtrees{{2, 2}, {4, 1}});
  CHECK(subtrees_of({.shards = {1, 2, 3, 4, 5, 6, 7}}) == Subtrees{{1, 1}, {2, 2}, {4, 4}});
  CHECK(subtrees_of({.shards = {}}).empty());
  CHECK(subtrees_of({.held = {{4, 2}}, .shards = {6, 7, 0}}) == Subtrees{{4, 4}, {0, 1}});
  CHECK(subtrees_of({.held = {{4, 2}}, .shards = {1}}) == Subtrees{{4, 2}, {1, 1}});
}

TEST_CASE("shards of which no rank has a sum go to those that have fewest") {
  const auto duties = divide_shards(8, 8, {{{0, 2}}, {}, {{4, 2}, {6, 1}}});
  CHECK(duties[0].held == Subtrees{{0, 2}});
  CHECK(duties[2].held == Subtrees{{4, 2}, {6, 1}});
  CHECK(duties[1].shards == std::vector<int>{2, 3});
  CHECK(duties[0].shards == std::vector<int>{7});
  CHECK(duties[2].shards.empty());
}

TEST_CASE("where few shards have a sum, the others are divided into few subtrees") {
  const auto duties = divide_shards(64, 64, {{{0, 2}}, {}, {}, {}});
  std::size_t subtrees = 0;
  for (const auto& duty : duties) {
    subtrees += subtrees_of(duty).size();
    int count = static_cast<int>(duty.shards.size());
    for (const auto& subtree : duty.held) count += subtree.size;
    CHECK(count == 16);
  }
  CHECK(subtrees <= 16);
}

TEST_CASE("of a shard that two ranks hold, the sum of the first one counts") {
  const auto duties = divide_shards(4, 4, {{{0, 2}}, {{0, 4}}, {{2, 1}}});
  CHECK(duties[0].held == Subtrees{{0, 2}});
  CHECK(duties[1].held.empty());
  CHECK(duties[2].held == Subtrees{{2, 1}});
  CHECK(duties[1].shards == std::vector<int>{3});
  CHECK(divide_shards(4, 2, {{{2, 2}}, {}})[0].held.empty());  // of shards that have no samples
}

TEST_CASE("the gradients of shards are kept until another step, without those that are incomplete") {
  ShardGradients gradients;
  const auto add = [&](int shard, bool is_complete = true) {
    gradients.begin_shard(shard);
    gradients.add_bucket(0, Values{static_cast<float>(shard), 1});
    gradients.add_loss(shard);
    if (is_complete) gradients.add_bucket(1, Values{10});
  };
  for (const std::int64_t number : {7, 8}) {  // the second step uses the memory of the first
    gradients.begin_step(number, 2);
    CHECK(gradients.held().empty());
    for (int shard = 1; shard < 7; ++shard) add(shard);
    add(7, false);
    gradients.begin_step(number, 2);  // another attempt
    CHECK(gradients.held() == Subtrees{{1, 1}, {2, 2}, {4, 2}, {6, 1}});
    CHECK(gradients.loss_sum() == 1 + 2 + 3 + 4 + 5 + 6);
    gradients.keep(Subtrees{{2, 2}, {4, 2}, {6, 1}});
    CHECK(gradients.loss_sum() == 2 + 3 + 4 + 5 + 6);
    add(7);
    Values written(4);
    CHECK(gradients.write_sums(0, 0, 2, written.data()) == written.data() + 4);
    CHECK(written == Values{2 + 3, 2, 4 + 5 + 6 + 7, 4});
    CHECK(gradients.write_sums(1, 0, 1, written.data()) == written.data() + 2);
    CHECK(written[1] == 40);
  }
}

TEST_CASE("gradients of shards have the sum of the tree with any number of ranks, also in short steps") {
  for (const int shards : {1, 6, 8}) {
    for (const int ranks : {1, 2, 3, 4, 5, 8}) {
      INFO(shards << " shards, " << ranks << " ranks");
      std::vector<std::map<int, Values>> results(static_cast<std::size_t>(ranks));
      run_ranks(ranks, [&](ProcessGroup& group) {
        ShardGradients gradients;
        Summing rank(shards, gradients, group);
        std::int64_t number = 0;
        for (const int filled : {shards, 1, shards - 1, shards})
          if (filled > 0)
            results[static_cast<std::size_t>(group.rank())][filled] = step(rank.reducer, *rank.hook, ++number, filled);
      });
      for (const auto& by_filled : results)
        for (const auto& [filled, values] : by_filled) CHECK(same_bits(values, tree_sum(filled, model_count())));
    }
  }
}

TEST_CASE("another group of ranks computes only the shards that the one before it has not, and sums all") {
  const int shards = 8, newcomers = GENERATE(0, 1);
  CAPTURE(newcomers);
  constexpr std::size_t survivors = 3;
  std::vector<ShardGradients> gradients(survivors + 1);
  run_ranks(4, [&](ProcessGroup& group) {
    Summing rank(shards, gradients[static_cast<std::size_t>(group.rank())], group);
    step(rank.reducer, *rank.hook, 5, shards, [](int shard) { return shard % 2 == 0; });
  });
  gradients[survivors] = {};  // rank 3 is lost, with shard 6
  std::vector<Values> results(survivors + static_cast<std::size_t>(newcomers));
  std::vector<std::vector<int>> computed(results.size());
  std::vector<double> losses(results.size());
  run_ranks(static_cast<int>(results.size()), [&](ProcessGroup& group) {
    const auto r = static_cast<std::size_t>(group.rank());
    Summing rank(shards, gradients[r], group);
    results[r] = step(rank.reducer, *rank.hook, 5, shards, [&](int shard) {
      computed[r].push_back(shard);
      return true;
    });
    losses[r] = rank.hook->loss_sum();
  });
  std::vector<int> all;
  for (const auto& of_rank : computed) all.insert(all.end(), of_rank.begin(), of_rank.end());
  std::ranges::sort(all);
  CHECK(all == std::vector<int>{1, 3, 5, 6, 7});
  for (const auto& values : results) CHECK(same_bits(values, tree_sum(shards, model_count())));
  CHECK(std::accumulate(losses.begin(), losses.end(), 0.0) == 0 + 1 + 2 + 3 + 4 + 5 + 6 + 7);
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
