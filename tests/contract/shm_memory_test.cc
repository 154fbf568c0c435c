// Features that only the shared-memory group has: operations on registered memory, on all ranks or some, and small
// operations that do not wait for peers.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "worker/comm/backends/shm/shm_group.h"
#include "worker/comm/registry/host_group.h"
#include "tests/contract/store_groups.h"
#include "tests/support/catch.h"

using namespace ddprun;
using contract::run_ranks;

namespace {

contract::Groups make_shm(int size) {
  return contract::make_groups(comm::make_shm_group, size, contract::test_timeout);
}

// The counts are around the limits of the payload in an announcement, of inline data, and of a staging slot; odd, so
// that slices have remainders.
constexpr std::size_t counts[] = {1, 25, 27, 255, 1023, 4095, 4097, 70'001, 600'001};

float value(int rank, std::size_t i) {
  return static_cast<float>(rank + 1) + static_cast<float>(i % 7);
}

void fill(std::span<float> values, int rank) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(rank, i);
}

bool is_sum(std::span<const float> values, int ranks) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    float sum = 0;
    for (int r = 0; r < ranks; ++r) sum += value(r, i);
    if (values[i] != sum) return false;
  }
  return true;
}

// Memory of a rank, from the group or its own.
struct Buffer {
  Buffer(ProcessGroup& group, bool registered, std::size_t count) : own(registered ? 0 : count) {
    if (registered) memory = group.allocate(count * sizeof(float));
    values = registered ? memory.as<float>() : std::span<float>(own);
  }
  Span span() { return {values.data(), values.size(), DType::float32}; }
  RegisteredBuffer memory;
  std::vector<float> own;
  std::span<float> values;
};

void allreduce_of_every_size(int size, bool (*registered)(int rank), OpOptions options) {
  auto groups = make_shm(size);
  run_ranks(groups, [&](ProcessGroup& group) {
    for (const auto count : counts) {
      Buffer buffer(group, registered(group.rank()), count);
      for (int repetition = 0; repetition < 3; ++repetition) {
        fill(buffer.values, group.rank());
        group.allreduce(buffer.span(), ReduceOp::sum, options)->wait();
        if (!is_sum(buffer.values, size)) throw std::runtime_error("wrong sum of " + std::to_string(count));
      }
    }
  });
}

// Each of the operations that go through staging slots, on values that differ from round to round.
class StagedRound {
 public:
  StagedRound(ProcessGroup& group, std::size_t count)
      : group_(group), size_(static_cast<std::size_t>(group.size())), one_(count), all_(size_ * count) {}

  void run(int round) {
    round_ = round;
    write(one_, group_.rank());
    group_.allreduce(span(one_), ReduceOp::sum, blocking);
    check("allreduce", is_sum(one_));
    const int root = round % group_.size();
    write(one_, group_.rank());
    group_.broadcast(span(one_), root, blocking);
    check("broadcast", is_of(one_, root));
    write(one_, group_.rank());
    group_.allgather(span(one_), span(all_), blocking);
    for (int r = 0; r < group_.size(); ++r) check("allgather", is_of(part(r), r));
    group_.reduce_scatter(span(all_), span(one_), ReduceOp::max, blocking);
    check("reduce_scatter", is_of(one_, group_.rank()));
    write(one_, group_.rank());
    group_.reduce(span(one_), root, ReduceOp::sum, blocking);
    check("reduce", group_.rank() != root || is_sum(one_));
    for (int r = 0; r < group_.size(); ++r) write(part(r), group_.rank());
    std::vector<float> received(all_.size());
    group_.all_to_all(span(all_), span(received), blocking);
    for (int r = 0; r < group_.size(); ++r)
      check("all_to_all",
            is_of(std::span(received).subspan(static_cast<std::size_t>(r) * one_.size(), one_.size()), r));
  }

 private:
  static constexpr OpOptions blocking{.timeout = {}, .blocking = true};

  static Span span(std::span<float> values) { return {values.data(), values.size(), DType::float32}; }
  std::span<float> part(int rank) {
    return std::span(all_).subspan(static_cast<std::size_t>(rank) * one_.size(), one_.size());
  }
  float value(int rank, std::size_t i) const { return static_cast<float>((rank + 1) * (round_ + 1)) + float(i % 7); }
  void write(std::span<float> values, int rank) const {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(rank, i);
  }
  bool is_of(std::span<const float> values, int rank) const {
    for (std::size_t i = 0; i < values.size(); ++i)
      if (values[i] != value(rank, i)) return false;
    return true;
  }
  bool is_sum(std::span<const float> values) const {
    for (std::size_t i = 0; i < values.size(); ++i) {
      float sum = 0;
      for (int r = 0; r < group_.size(); ++r) sum += value(r, i);
      if (values[i] != sum) return false;
    }
    return true;
  }
  void check(const char* what, bool right) const {
    if (!right) throw std::runtime_error(std::string(what) + " is wrong in round " + std::to_string(round_));
  }

  ProcessGroup& group_;
  const std::size_t size_;
  std::vector<float> one_, all_;
  int round_ = 0;
};

// Returns the size of the segments of all groups of this process, counted once for each rank that has one open.
std::uintmax_t shared_bytes() {
  std::uintmax_t bytes = 0;
  for (const auto& open : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(open, gone).string();
    if (target.find("memfd:ddprun-group") != std::string::npos) bytes += std::filesystem::file_size(open);
  }
  return bytes;
}

}  // namespace

TEST_CASE("an allreduce works on registered memory, on other memory, and on both at once") {
  const auto size = GENERATE(2, 3, 5);
  const bool blocking = GENERATE(true, false);
  const OpOptions options{.timeout = {}, .blocking = blocking};
  CHECK_NOTHROW(allreduce_of_every_size(
      size, [](int) { return true; }, options));
  CHECK_NOTHROW(allreduce_of_every_size(
      size, [](int) { return false; }, options));
  CHECK_NOTHROW(allreduce_of_every_size(
      size, [](int rank) { return rank == 1; }, options));
}

// There are enough rounds for both ways of writing, in every place of the slots.
TEST_CASE("staged operations are right at every place of the slots, written through the caches and past them") {
  const auto size = GENERATE(2, 3);
  const auto make = [](GroupOptions options) {
    options.config.staging_bytes = 512 << 10;
    return comm::make_shm_group(options);
  };
  auto groups = contract::make_groups(make, size, contract::test_timeout);
  const auto rounds = [](ProcessGroup& group) {
    for (const auto& [count, number] : {std::pair{4'200U, 200}, {40'001U, 48}, {200'003U, 24}}) {
      StagedRound round(group, count);
      for (int i = 0; i < number; ++i) round.run(i);
    }
  };
  CHECK_NOTHROW(run_ranks(groups, rounds));
}

TEST_CASE(
    "unequal parts are reduced and gathered in place in registered memory, in other memory, and in both at once") {
  const auto size = GENERATE(2, 3, 5);
  for (const auto registered :
       {+[](int) { return true; }, +[](int) { return false; }, +[](int rank) { return rank == 1; }}) {
    auto groups = make_shm(size);
    run_ranks(groups, [&](ProcessGroup& group) {
      for (const auto count : counts) {
        Counts parts(static_cast<std::size_t>(size), count);
        parts[0] += 5;
        parts.back() = 0;
        std::vector<std::size_t> offsets{0};
        for (const auto part : parts) offsets.push_back(offsets.back() + part);
        const auto own = static_cast<std::size_t>(group.rank());
        Buffer buffer(group, registered(group.rank()), offsets.back());
        const Span part{buffer.values.data() + offsets[own], parts[own], DType::float32};
        fill(buffer.values, group.rank());
        group.reduce_scatterv(buffer.span(), part, parts, ReduceOp::sum)->wait();
        std::fill_n(buffer.values.begin(), offsets[own], -1.0F);
        std::fill(buffer.values.begin() + static_cast<std::ptrdiff_t>(offsets[own + 1]), buffer.values.end(), -1.0F);
        group.allgatherv(part, buffer.span(), parts)->wait();
        if (!is_sum(buffer.values, size)) throw std::runtime_error("wrong sum of parts of " + std::to_string(count));
      }
    });
  }
}

TEST_CASE("ranks that share memory, also in a hierarchical group, use the staging memory that the options give") {
  const auto bytes_used = [](auto make, int size, std::size_t staging_bytes) {
    const auto groups = contract::make_groups(
        [&](GroupOptions options) {
          options.config.staging_bytes = staging_bytes;
          options.config.host = options.rank < 2 ? "one" : "other";
          return make(options);
        },
        size, contract::test_timeout);
    return shared_bytes();
  };
  CHECK(bytes_used(comm::make_shm_group, 2, 65'536) - bytes_used(comm::make_shm_group, 2, 4096) == 2 * 2 * 2 * 61'440);
  const auto make_hierarchical = comm::make_hierarchical_group;
  CHECK(bytes_used(make_hierarchical, 4, 65'536) - bytes_used(make_hierarchical, 4, 4096) == 4 * 2 * 2 * 61'440);
}

TEST_CASE("some ranks may call an operation blocking and others not") {
  auto groups = make_shm(3);
  run_ranks(groups, [](ProcessGroup& group) {
    for (const auto count : counts) {
      Buffer buffer(group, group.rank() > 0, count);
      fill(buffer.values, group.rank());
      group.allreduce(buffer.span(), ReduceOp::sum, {.timeout = {}, .blocking = group.rank() == 0})->wait();
      if (!is_sum(buffer.values, 3)) throw std::runtime_error("wrong sum of " + std::to_string(count));
    }
  });
}

TEST_CASE("parts of registered memory are recognised too, and freed memory is not mistaken for new memory") {
  auto groups = make_shm(2);
  run_ranks(groups, [](ProcessGroup& group) {
    for (int repetition = 0; repetition < 5; ++repetition) {
      Buffer buffer(group, true, 20'000);
      const Buffer other(group, true, 100);
      const auto part = buffer.values.subspan(101 * static_cast<std::size_t>(group.rank() + 1), 9'001);
      fill(part, group.rank());
      group.allreduce({part.data(), part.size(), DType::float32}, ReduceOp::sum, {.timeout = {}, .blocking = true});
      if (!is_sum(part, 2)) throw std::runtime_error("wrong sum");
    }
  });
}

TEST_CASE("no rank keeps freed memory open") {
  auto groups = make_shm(2);
  const auto descriptors = [] {
    const std::filesystem::directory_iterator open("/proc/self/fd");
    return std::distance(begin(open), end(open));
  };
  const auto rounds_of_new_memory = [&](int rounds) {
    run_ranks(groups, [&](ProcessGroup& group) {
      for (int round = 0; round < rounds; ++round) {
        const Buffer buffer(group, true, 20'000);
        group.allreduce(Span{buffer.values.data(), buffer.values.size(), DType::float32}, {}, {.blocking = true});
      }
    });
    return descriptors();
  };
  const auto after_one = rounds_of_new_memory(1);
  CHECK(rounds_of_new_memory(30) < after_one + 10);  // the threads of the group open some, for a moment
}

TEST_CASE("the other operations work on registered memory") {
  const auto size = GENERATE(2, 4);
  const std::size_t count = GENERATE(33u, 3'001u, 100'003u);
  auto groups = make_shm(size);
  const auto expect = [](bool right, const char* what) {
    if (!right) throw std::runtime_error(what);
  };
  run_ranks(groups, [&](ProcessGroup& group) {
    const auto all = count * static_cast<std::size_t>(size);
    const auto rank = static_cast<std::size_t>(group.rank());
    Buffer part(group, true, count), whole(group, true, all), other(group, true, all);
    fill(part.values, group.rank());
    group.allgather(part.span(), whole.span())->wait();
    for (std::size_t i = 0; i < all; ++i)
      expect(whole.values[i] == value(static_cast<int>(i / count), i % count), "allgather");

    fill(whole.values, group.rank());
    group.reduce_scatter(whole.span(), part.span(), ReduceOp::sum)->wait();
    for (std::size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (int r = 0; r < size; ++r) sum += value(r, rank * count + i);
      expect(part.values[i] == sum, "reduce_scatter");
    }

    fill(whole.values, group.rank());
    group.all_to_all(whole.span(), other.span())->wait();
    for (std::size_t i = 0; i < all; ++i)
      expect(other.values[i] == value(static_cast<int>(i / count), rank * count + i % count), "all_to_all");
    group.all_to_all(whole.span(), whole.span())->wait();
    expect(std::equal(whole.values.begin(), whole.values.end(), other.values.begin()), "all_to_all in place");

    fill(part.values, group.rank());
    group.broadcast(part.span(), 1)->wait();
    for (std::size_t i = 0; i < count; ++i) expect(part.values[i] == value(1, i), "broadcast");

    fill(part.values, group.rank());
    group.reduce(part.span(), 0)->wait();
    expect(group.rank() > 0 || is_sum(part.values, size), "reduce");
  });
}

TEST_CASE("small operations in flight do not wait for peers before their wait()") {
  auto groups = make_shm(2);
  constexpr std::size_t many = 30;  // more than the announcement ring holds
  std::vector<std::vector<float>> mine(many, {1, 2}), theirs(many, {10, 20});
  std::vector<WorkPtr> works;
  for (auto& values : mine) works.push_back(groups[0]->allreduce(span_of(values)));
  CHECK_FALSE(works.front()->done());
  for (auto& values : theirs) groups[1]->allreduce(span_of(values));  // the Work is dropped
  for (std::size_t i = 0; i < many; ++i) {
    works[many - 1 - i]->wait();  // in any order
    CHECK(mine[many - 1 - i] == std::vector<float>{11, 22});
  }
  const auto last = groups[1]->barrier();
  groups[0]->barrier()->wait();
  last->wait();
  CHECK(theirs.back() == std::vector<float>{11, 22});
}

TEST_CASE("an operation whose Work is dropped is completed") {
  auto groups = make_shm(2);
  std::vector<float> mine = {1}, theirs = {2};
  const auto work = groups[0]->allreduce(span_of(mine));
  groups[1]->allreduce(span_of(theirs), {}, {.timeout = {}, .blocking = true});
  CHECK(theirs[0] == 3);
  work->wait(Deadline::in(contract::test_timeout));
  CHECK(mine[0] == 3);
}

TEST_CASE("registered memory may outlive its group") {
  RegisteredBuffer memory;
  {
    auto groups = make_shm(2);
    memory = groups[0]->allocate(10'000);
    CHECK(memory.bytes() == 10'000);
    CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % 4096 == 0);
  }
  memory.as<int>()[0] = 42;
  CHECK(memory.as<int>()[0] == 42);
}

TEST_CASE("a forked child that frees registered memory leaves its parent's content alone") {
  auto groups = make_shm(2);
  auto memory = groups[0]->allocate(10'000);
  memory.as<int>()[0] = 42;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    memory = {};
    ::_exit(0);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(memory.as<int>()[0] == 42);
}
