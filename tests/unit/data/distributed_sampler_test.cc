#include "worker/data/distributed_sampler.h"

#include <set>

#include "common/bytes.h"
#include "common/error.h"
#include "worker/digest/sha256.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::data;

namespace {

struct Row {
  SamplerOptions options;
  std::vector<std::int64_t> expected;
};

// The table was made with PyTorch 1.13, a line a row:
//   s = torch.utils.data.DistributedSampler(range(size), num_replicas=world_size, rank=rank, shuffle=shuffle,
//   seed=seed,
//                                           drop_last=drop_last); s.set_epoch(epoch); print(list(s))
// The columns are size, world_size, rank, seed, epoch, shuffle, drop_last.
const std::vector<Row> pytorch_table = {
    {{10, 2, 0, 0ULL, 0, true, false}, {4, 7, 3, 0, 6}},
    {{10, 2, 1, 0ULL, 0, true, false}, {1, 5, 9, 8, 2}},
    {{10, 3, 0, 0ULL, 1, true, false}, {5, 2, 9, 4}},
    {{10, 3, 2, 0ULL, 1, true, false}, {1, 8, 7, 6}},
    {{11, 4, 0, 42ULL, 3, true, false}, {7, 6, 10}},
    {{11, 4, 3, 42ULL, 3, true, false}, {1, 5, 7}},
    {{11, 4, 0, 42ULL, 3, true, true}, {7, 6}},
    {{11, 4, 3, 42ULL, 3, true, true}, {1, 5}},
    {{3, 8, 0, 7ULL, 0, true, false}, {0}},
    {{3, 8, 7, 7ULL, 0, true, false}, {1}},
    {{13, 5, 0, 0ULL, 0, false, false}, {0, 5, 10}},
    {{13, 5, 4, 0ULL, 0, false, false}, {4, 9, 1}},
    {{13, 5, 0, 0ULL, 0, false, true}, {0, 5}},
    {{13, 5, 4, 0ULL, 0, false, true}, {4, 9}},
    {{24, 3, 0, 8589934597ULL, 2, true, false}, {15, 11, 23, 5, 10, 19, 21, 0}},
    {{24, 3, 2, 8589934597ULL, 2, true, false}, {3, 8, 20, 4, 2, 13, 17, 14}},
};

std::string digest(const std::vector<std::int64_t>& values) {
  std::string bytes;
  for (const auto value : values) put_le(bytes, value);
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

}  // namespace

TEST_CASE("the indices are those of PyTorch's DistributedSampler") {
  for (const auto& row : pytorch_table) {
    const auto& o = row.options;
    INFO("size " << o.size << " world " << o.world_size << " rank " << o.rank << " seed " << o.seed << " epoch "
                 << o.epoch << " shuffle " << o.shuffle << " drop_last " << o.drop_last);
    CHECK(distributed_indices(o) == row.expected);
  }
}

// The digest is hashlib.sha256(b"".join(i.to_bytes(8, "little") for i in
//     torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tolist())).hexdigest()
TEST_CASE("a shuffle of 60,000 is PyTorch's randperm") {
  CHECK(digest(torch_randperm(60000, 0)) == "4c226c41bdd65c9e11fe47eba8358cefb5c375b9699b1c912586a2125168af52");
  CHECK(digest(torch_randperm(60000, 123456789)) == "a1234cd11f5335339c1243f6a8d2131aafd9883233fbf672b2cefff3a2b93d63");
  CHECK(torch_randperm(1, 0) == std::vector<std::int64_t>{0});
  CHECK_THROWS_AS(torch_randperm(std::int64_t{1} << 28, 0), Error);
}

TEST_CASE("a common position means the same samples in any world size") {
  const auto prefix = [](int world, std::int64_t per_rank) {
    std::set<std::int64_t> seen;
    for (int rank = 0; rank < world; ++rank) {
      const auto own = distributed_indices({.size = 240, .world_size = world, .rank = rank, .seed = 5, .epoch = 2});
      seen.insert(own.begin(), own.begin() + per_rank);
    }
    return seen;
  };
  CHECK(prefix(1, 96) == prefix(2, 48));
  CHECK(prefix(2, 48) == prefix(4, 24));
}

TEST_CASE("evaluation counts every sample exactly once") {
  for (const int world : {1, 2, 3, 7, 12}) {
    std::multiset<std::int64_t> seen;
    for (int rank = 0; rank < world; ++rank) {
      const auto own = evaluation_indices(10, world, rank);
      seen.insert(own.begin(), own.end());
    }
    CHECK(seen.size() == 10);
    CHECK(std::set<std::int64_t>(seen.begin(), seen.end()).size() == 10);
  }
}

TEST_CASE("a sampler refuses what it cannot serve") {
  CHECK_THROWS_WITH(distributed_indices({.size = 0}), "the dataset is empty: there is nothing to sample from");
  CHECK_THROWS_AS(distributed_indices({.size = 3, .world_size = 4, .rank = 0, .drop_last = true}), Error);
  CHECK_THROWS_AS(distributed_indices({.size = 3, .world_size = 2, .rank = 2}), Error);
}
