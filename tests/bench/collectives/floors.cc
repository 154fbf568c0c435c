// The floors of an allreduce of float32. Every rank reduces its slice of whole cache lines; a barrier uses one flag per
// rank, each in its own cache line.
#include <algorithm>
#include <cstdint>

#include "common/rounding.h"
#include "tests/bench/collectives/subject.h"

namespace ddprun::bench {
namespace {

constexpr std::size_t line = 64 / sizeof(float);
constexpr std::size_t unsliced_bytes = 16 * 1024;  // staged: up to this size every rank reduces all inputs itself

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define DDPRUN_BENCH_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define DDPRUN_BENCH_CLONES
#endif

DDPRUN_BENCH_CLONES void add(float* out, const float* a, const float* b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

// The loops are written such that the compiler does not call memcpy, for which some C libraries use an instruction that
// is slow between processors.
DDPRUN_BENCH_CLONES void copy_near(float* __restrict out, const float* __restrict in, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = in[i];
}

struct Slice {
  std::size_t begin, count;
};
Slice slice_of(std::size_t count, int rank, int ranks) {
  const auto share = divide_up(divide_up(count, line), static_cast<std::size_t>(ranks)) * line;
  const auto begin = std::min(count, static_cast<std::size_t>(rank) * share);
  return {begin, std::min(share, count - begin)};
}

class Floor : public Subject {
 public:
  Floor(SharedMapping& mapping, int rank) : mapping_(mapping), rank_(rank) {}
  void* input(std::size_t bytes) override {
    count_ = bytes / sizeof(float);
    return buffer(rank_);
  }
  const void* output() override { return buffer(rank_); }

 protected:
  float* buffer(int r) const { return reinterpret_cast<float*>(mapping_.buffer(r)); }
  // out := the sum of all ranks' inputs, in blocks that stay in the first-level cache.
  template <class Input>
  void sum(float* out, std::size_t count, Input input) const {
    if (mapping_.ranks() == 1) return copy_near(out, input(0), count);
    constexpr std::size_t block = 2048;
    for (std::size_t done = 0; done < count; done += block) {
      const auto n = std::min(block, count - done);
      add(out + done, input(0) + done, input(1) + done, n);
      for (int r = 2; r < mapping_.ranks(); ++r) add(out + done, out + done, input(r) + done, n);
    }
  }

  SharedMapping& mapping_;
  const int rank_;
  std::size_t count_ = 0;
};

class SharedResult : public Floor {
 public:
  using Floor::Floor;
  std::string name() const override { return "floor: one result"; }
  const void* output() override { return mapping_.result(); }
  void run() override {
    const auto slice = slice_of(count_, rank_, mapping_.ranks());
    mapping_.barrier(rank_);
    sum(reinterpret_cast<float*>(mapping_.result()) + slice.begin, slice.count,
        [&](int r) { return buffer(r) + slice.begin; });
    mapping_.barrier(rank_);
  }
};

class InPlace : public Floor {
 public:
  using Floor::Floor;
  std::string name() const override { return "floor: in place"; }
  void run() override {
    const auto slice = slice_of(count_, rank_, mapping_.ranks());
    constexpr std::size_t block = 4096;
    float sums[block];
    mapping_.barrier(rank_);
    for (std::size_t done = 0; done < slice.count; done += block) {
      const auto n = std::min(block, slice.count - done);
      const auto at = slice.begin + done;
      sum(sums, n, [&](int r) { return buffer(r) + at; });
      for (int r = 0; r < mapping_.ranks(); ++r) copy_near(buffer(r) + at, sums, n);
    }
    mapping_.barrier(rank_);
  }
};

class Staged : public Floor {
 public:
  using Floor::Floor;
  std::string name() const override { return "floor: staged"; }
  void* input(std::size_t bytes) override {
    private_.resize(bytes / sizeof(float));
    return private_.data();
  }
  const void* output() override { return private_.data(); }
  void run() override {
    if (private_.size() * sizeof(float) <= unsliced_bytes) {
      reduce_unsliced();
    } else {
      for (std::size_t phase = 0; phase < chunks() + 2; ++phase) run_phase(phase);
    }
  }

 private:
  static constexpr std::size_t chunk = SharedMapping::slot_bytes / sizeof(float);
  std::size_t chunks() const { return divide_up(private_.size(), chunk); }
  float* slot(int r, std::size_t parity) const { return reinterpret_cast<float*>(mapping_.slot(r, parity)); }

  void reduce_unsliced() {
    const auto parity = ++calls_;
    copy_near(slot(rank_, parity), private_.data(), private_.size());
    mapping_.barrier(rank_);
    sum(private_.data(), private_.size(), [&](int r) { return slot(r, parity); });
  }

  // Each chunk is distributed, reduced and gathered in three phases; three chunks are in progress at once. A rank
  // writes its sum to its own slice of the slot of the other parity.
  void run_phase(std::size_t phase) {
    if (phase < chunks()) distribute(phase);
    if (phase >= 1 && phase - 1 < chunks()) reduce_own(phase - 1);
    if (phase >= 2) gather(phase - 2);
    mapping_.barrier(rank_);
  }
  template <class Action>
  void for_slices(std::size_t number, Action action) {
    const auto first = number * chunk;
    for (int r = 0; r < mapping_.ranks(); ++r) {
      const auto slice = slice_of(std::min(chunk, private_.size() - first), r, mapping_.ranks());
      action(r, private_.data() + first + slice.begin, offset(r), slice.count);
    }
  }
  // The offset of rank r's slice in a slot, for chunks of every size.
  std::size_t offset(int r) const { return slice_of(chunk, r, mapping_.ranks()).begin; }
  void distribute(std::size_t number) {
    for_slices(number, [&](int r, const float* own, std::size_t at, std::size_t n) {
      if (r != rank_) copy_near(slot(rank_, number) + at, own, n);
    });
  }
  void reduce_own(std::size_t number) {
    for_slices(number, [&](int r, float* own, std::size_t at, std::size_t n) {
      if (r != rank_) return;
      auto* const result = slot(rank_, number + 1) + at;
      sum(result, n, [&](int from) { return from == rank_ ? own : slot(from, number) + at; });
      copy_near(own, result, n);
    });
  }
  void gather(std::size_t number) {
    for_slices(number, [&](int r, float* own, std::size_t at, std::size_t n) {
      if (r != rank_) copy_near(own, slot(r, number + 1) + at, n);
    });
  }

  std::vector<float> private_;
  std::size_t calls_ = 0;
};

class Copy : public Subject {
 public:
  std::string name() const override { return "floor: memory copy"; }
  void* input(std::size_t bytes) override {
    from_.resize(bytes / sizeof(float) + 1);
    to_.resize(from_.size());
    return from_.data();
  }
  const void* output() override { return nullptr; }
  void run() override { copy_near(to_.data(), from_.data(), from_.size()); }

 private:
  std::vector<float> from_, to_;
};

}  // namespace

std::unique_ptr<Subject> shared_result_floor(SharedMapping& mapping, int rank) {
  return std::make_unique<SharedResult>(mapping, rank);
}
std::unique_ptr<Subject> in_place_floor(SharedMapping& mapping, int rank) {
  return std::make_unique<InPlace>(mapping, rank);
}
std::unique_ptr<Subject> staged_floor(SharedMapping& mapping, int rank) {
  return std::make_unique<Staged>(mapping, rank);
}
std::unique_ptr<Subject> copy_floor() {
  return std::make_unique<Copy>();
}

}  // namespace ddprun::bench
