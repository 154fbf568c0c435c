#include "worker/cuda/emulator/block.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>

#include "worker/cuda/emulator/fibre.h"

#ifdef DDPRUN_EMULATOR_TSAN
#include <sanitizer/tsan_interface.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace ddprun::cuda::emulator {
namespace {

constexpr int warp = 32;
constexpr int max_warps = max_threads_of_block / warp;
constexpr std::size_t stack_bytes = 256 * 1024;

#ifdef DDPRUN_EMULATOR_TSAN
constexpr bool one_fibre_per_thread = true;
void release(char& word) {
  __tsan_release(&word);
}
void acquire(char& word) {
  __tsan_acquire(&word);
}
#else
constexpr bool one_fibre_per_thread = false;
void release(char&) {}
void acquire(char&) {}
#endif

// Words that order the memory accesses of threads, for ThreadSanitizer: each is an address that is released and
// acquired. Barriers have two that are used in turn: a late thread must not acquire what an early one released at the
// next one. Shuffles and ballots have none: they order no memory.
struct OrderWords {
  char begin, end;
  char block_barriers[2];
  char warp_barriers[max_warps][2];
};
OrderWords words;

enum class Wait : std::uint8_t { nothing, block_barrier, warp_barrier, shuffle, ballot };
constexpr const char* names[] = {"nothing", "__syncthreads()", "__syncwarp()", "a shuffle", "a ballot"};

struct Thread {
  Fibre* fibre;  // null before the thread has begun
  Wait wait;
  unsigned int mask;    // the lanes that it waits for
  std::uint64_t value;  // the value that it gives, and afterwards the one that it gets
  Source source;
  int operand, width;
};

struct Warp {
  unsigned int alive;    // lanes that have not ended
  unsigned int waiting;  // lanes that wait for others
  unsigned int generation;
};

// Runs one grid at a time. ThreadSanitizer does not see this file: the bookkeeping passes from fibre to fibre without
// an order and would be reported. So templates and inline functions that instrumented code may share have no part in
// it.
class GridExecutor {
 public:
  std::string run(const Grid& grid, std::uint64_t seed);

  void wait_for_block();
  void wait_for_warp(unsigned int mask);
  std::uint64_t exchange(Wait kind, unsigned int mask, std::uint64_t value, Source source, int operand, int width);
  void* shared_memory() { return shared_; }

 private:
  static void fibre_main();
  void run_threads();
  bool begin_next_block();
  void run_thread(int index);
  void finish_thread(int index);

  std::uint32_t random_below(std::uint32_t n);
  int choose();  // takes one of the threads that can continue; -1 if there is none
  void make_runnable(int index) { runnable_[runnable_count_++] = index; }
  void park(int index);  // stops the thread until it is chosen
  void set_position(int index);
  void release_block_if_complete();
  void release_warp_if_complete(int index);
  std::uint64_t shuffled(const Thread* lanes, int lane, unsigned int present) const;
  [[noreturn]] void fail(const char* reason);

  Fibre& fibre_for(int index);
  void give_up_running();
  void switch_to(Fibre& fibre);
  [[noreturn]] void leave_to(Fibre& fibre);

  const Grid* grid_ = nullptr;
  std::uint64_t random_ = 0;
  std::uint64_t blocks_ = 0, begun_blocks_ = 0, first_block_ = 0, block_stride_ = 1;
  int threads_ = 0, finished_ = 0, at_barrier_ = 0;
  unsigned int barrier_generation_ = 0;
  Thread thread_[max_threads_of_block];
  Warp warp_[max_warps];
  int runnable_[max_threads_of_block];
  int runnable_count_ = 0;
  int current_ = 0;  // the thread that runs

  Fibre* host_ = nullptr;
  Fibre* running_ = nullptr;
  int pending_ = -1;  // the thread that a new fibre begins with
  std::unique_ptr<Fibre> fibres_[max_threads_of_block];
  Fibre* free_[max_threads_of_block];
  int made_ = 0, free_count_ = 0;

  char fault_[512] = "";
  alignas(128) char shared_[max_shared_memory];
};

GridExecutor& executor() {
  static auto& one = *new GridExecutor;
  return one;
}

std::string GridExecutor::run(const Grid& grid, std::uint64_t seed) {
  grid_ = &grid;
  random_ = seed;
  blocks_ = std::uint64_t{grid.blocks.x} * grid.blocks.y * grid.blocks.z;
  threads_ = static_cast<int>(grid.threads.x * grid.threads.y * grid.threads.z);
  begun_blocks_ = 0;
  // The order of blocks: every stride that shares no factor with their number visits all.
  first_block_ = random_below(static_cast<std::uint32_t>(blocks_));
  block_stride_ = 1 + random_below(static_cast<std::uint32_t>(blocks_));
  while (std::gcd(block_stride_, blocks_) != 1) ++block_stride_;
  blockDim = grid.threads;
  gridDim = grid.blocks;
  fault_[0] = '\0';
  pending_ = -1;

  // Fibres are made here, because a fibre that another one makes is ordered after it.
  for (int i = 0; one_fibre_per_thread && i < threads_; ++i)
    if (!fibres_[i]) fibres_[i] = std::make_unique<Fibre>(stack_bytes);

  Fibre host;
  host_ = running_ = &host;
  finished_ = threads_;
  release(words.end);
  if (begin_next_block()) {
    const int first = choose();
    Fibre& fibre = fibre_for(first);
    fibre.start(fibre_main);
    pending_ = first;
    switch_to(fibre);
  }
  acquire(words.end);
  if (fault_[0] != '\0') {  // stacks that were left in the middle are of no use
    for (int i = 0; i < max_threads_of_block; ++i) fibres_[i].reset();
    made_ = free_count_ = 0;
  }
  return fault_;
}

void GridExecutor::fibre_main() {
  executor().run_threads();
}

void GridExecutor::run_threads() {
  for (;;) {
    int next = pending_;
    pending_ = -1;
    while (next < 0) {
      next = choose();
      if (next >= 0) break;
      if (finished_ < threads_) fail("threads wait for others that do not come");
      if (!begin_next_block()) {
        give_up_running();
        leave_to(*host_);
      }
    }
    Fibre* const resumed = thread_[next].fibre;
    if (resumed != nullptr) {
      give_up_running();
      leave_to(*resumed);
    }
    if (one_fibre_per_thread) {
      Fibre& own = fibre_for(next);
      if (&own != running_) {
        own.start(fibre_main);
        pending_ = next;
        leave_to(own);
      }
    }
    run_thread(next);
  }
}

bool GridExecutor::begin_next_block() {
  if (begun_blocks_ == blocks_) return false;
  const std::uint64_t number = (first_block_ + begun_blocks_++ * block_stride_) % blocks_;
  const dim3& grid = grid_->blocks;
  blockIdx = {static_cast<unsigned int>(number % grid.x), static_cast<unsigned int>(number / grid.x % grid.y),
              static_cast<unsigned int>(number / grid.x / grid.y)};
  acquire(words.end);
  std::memset(shared_, 0xff, grid_->shared_bytes);  // no kernel may rely on what is in it
  for (int i = 0; i < threads_; ++i) {
    thread_[i].fibre = nullptr;
    thread_[i].wait = Wait::nothing;
    runnable_[i] = i;
  }
  for (int i = 0; i * warp < threads_; ++i) {
    const int lanes = threads_ - i * warp;
    warp_[i].alive = lanes >= warp ? 0xffffffff : (1u << lanes) - 1;
    warp_[i].waiting = 0;
  }
  runnable_count_ = threads_;
  finished_ = at_barrier_ = 0;
  release(words.begin);
  return true;
}

void GridExecutor::run_thread(int index) {
  thread_[index].fibre = running_;
  current_ = index;
  set_position(index);
  acquire(words.begin);
  (*grid_->thread)();
  release(words.end);
  finish_thread(current_);
}

void GridExecutor::finish_thread(int index) {
  ++finished_;
  thread_[index].fibre = nullptr;
  Warp& own = warp_[index / warp];
  own.alive &= ~(1u << index % warp);
  for (int lane = 0; own.waiting != 0 && lane < warp; ++lane)
    if ((own.waiting >> lane & 1) != 0) release_warp_if_complete(index / warp * warp + lane);
  if (at_barrier_ > 0) release_block_if_complete();
}

// Xorshift (Marsaglia 2003), started by a number from SplitMix64.
std::uint32_t GridExecutor::random_below(std::uint32_t n) {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return static_cast<std::uint32_t>((random_ >> 32) * n >> 32);
}

int GridExecutor::choose() {
  if (runnable_count_ == 0) return -1;
  const std::uint32_t at = random_below(static_cast<std::uint32_t>(runnable_count_));
  const int chosen = runnable_[at];
  runnable_[at] = runnable_[--runnable_count_];
  return chosen;
}

void GridExecutor::park(int index) {
  release(words.end);  // the thread may never continue
  const int next = choose();
  if (next < 0) fail("threads wait for others that do not come");
  if (next == index) return;
  Fibre* fibre = thread_[next].fibre;
  if (fibre == nullptr) {
    fibre = &fibre_for(next);
    fibre->start(fibre_main);
    pending_ = next;
  }
  switch_to(*fibre);
  current_ = index;
  set_position(index);
}

void GridExecutor::set_position(int index) {
  const auto i = static_cast<unsigned int>(index);
  const dim3& size = grid_->threads;
  threadIdx = {i % size.x, i / size.x % size.y, i / size.x / size.y};
}

void GridExecutor::wait_for_block() {
  const int index = current_;
  char& word = words.block_barriers[barrier_generation_ % 2];
  release(word);
  thread_[index].wait = Wait::block_barrier;
  ++at_barrier_;
  release_block_if_complete();
  park(index);
  acquire(word);
}

void GridExecutor::release_block_if_complete() {
  if (at_barrier_ + finished_ < threads_) return;
  for (int i = 0; i < threads_; ++i) {
    if (thread_[i].wait != Wait::block_barrier) continue;
    thread_[i].wait = Wait::nothing;
    make_runnable(i);
  }
  at_barrier_ = 0;
  ++barrier_generation_;
}

void GridExecutor::wait_for_warp(unsigned int mask) {
  const int number = current_ / warp;
  char& word = words.warp_barriers[number][warp_[number].generation % 2];
  release(word);
  exchange(Wait::warp_barrier, mask, 0, Source::index, 0, warp);
  acquire(word);
}

std::uint64_t GridExecutor::exchange(Wait kind, unsigned int mask, std::uint64_t value, Source source, int operand,
                                     int width) {
  const int index = current_;
  if ((mask >> index % warp & 1) == 0) fail("a lane is not in the mask that it waits with");
  Thread& self = thread_[index];
  self.wait = kind;
  self.mask = mask;
  self.value = value;
  self.source = source;
  self.operand = operand;
  self.width = width;
  warp_[index / warp].waiting |= 1u << index % warp;
  release_warp_if_complete(index);
  park(index);
  return self.value;
}

void GridExecutor::release_warp_if_complete(int index) {
  Warp& own = warp_[index / warp];
  const unsigned int mask = thread_[index].mask;
  const Wait kind = thread_[index].wait;
  const unsigned int present = mask & own.alive;
  if ((own.waiting & present) != present) return;
  Thread* const lanes = thread_ + index / warp * warp;
  for (int lane = 0; lane < warp; ++lane)
    if ((present >> lane & 1) != 0 && (lanes[lane].wait != kind || lanes[lane].mask != mask)) return;

  std::uint64_t results[warp];
  unsigned int votes = 0;
  for (int lane = 0; lane < warp; ++lane)
    if ((present >> lane & 1) != 0 && lanes[lane].value != 0) votes |= 1u << lane;
  for (int lane = 0; lane < warp; ++lane)
    if ((present >> lane & 1) != 0) results[lane] = kind == Wait::shuffle ? shuffled(lanes, lane, present) : votes;
  for (int lane = 0; lane < warp; ++lane) {
    if ((present >> lane & 1) == 0) continue;
    lanes[lane].value = results[lane];
    lanes[lane].wait = Wait::nothing;
    make_runnable(index / warp * warp + lane);
  }
  own.waiting &= ~present;
  if (kind == Wait::warp_barrier) ++own.generation;
}

std::uint64_t GridExecutor::shuffled(const Thread* lanes, int lane, unsigned int present) const {
  const Thread& self = lanes[lane];
  const int first = lane & ~(self.width - 1), last = first + self.width - 1;
  int from = lane;
  switch (self.source) {
    case Source::index:
      from = first + (self.operand & (self.width - 1));
      break;
    case Source::exclusive_or:
      from = lane ^ self.operand;
      break;
    case Source::down:
      from = lane + self.operand;
      break;
    case Source::up:
      from = lane - self.operand;
      if (from < first) from = lane;
      break;
  }
  if (from > last) from = lane;
  // The value that a lane gets from one that takes no part is undefined: here it is no number.
  return (present >> from & 1) != 0 ? lanes[from].value : ~std::uint64_t{0};
}

void GridExecutor::fail(const char* reason) {
  int waiting[5] = {};
  for (int i = 0; i < threads_; ++i) ++waiting[static_cast<int>(thread_[i].wait)];
  int length = std::snprintf(fault_, sizeof fault_, "%s; block (%u, %u, %u), %d of %d threads have ended", reason,
                             blockIdx.x, blockIdx.y, blockIdx.z, finished_, threads_);
  for (int i = 1; i < 5; ++i)
    if (waiting[i] > 0)
      length += std::snprintf(fault_ + length, sizeof fault_ - static_cast<std::size_t>(length), ", %d wait at %s",
                              waiting[i], names[i]);
  release(words.end);
  leave_to(*host_);
}

Fibre& GridExecutor::fibre_for(int index) {
  if (one_fibre_per_thread) return *fibres_[index];
  if (free_count_ > 0) return *free_[--free_count_];
  fibres_[made_] = std::make_unique<Fibre>(stack_bytes);
  return *fibres_[made_++];
}

// The fibre is used again for the next thread that begins.
void GridExecutor::give_up_running() {
  if (!one_fibre_per_thread) free_[free_count_++] = running_;
}

void GridExecutor::switch_to(Fibre& fibre) {
  Fibre* const self = running_;
  running_ = &fibre;
  self->switch_to(fibre);
}

void GridExecutor::leave_to(Fibre& fibre) {
  Fibre* const self = running_;
  running_ = &fibre;
  self->leave_to(fibre);
  __builtin_unreachable();
}

}  // namespace

std::string run_grid(const Grid& grid, Random& random) {
  return executor().run(grid, random.next() | 1);
}

void block_barrier() {
  executor().wait_for_block();
}

void warp_barrier(unsigned int mask) {
  executor().wait_for_warp(mask);
}

std::uint64_t shuffle(unsigned int mask, std::uint64_t bits, Source source, int operand, int width) {
  return executor().exchange(Wait::shuffle, mask, bits, source, operand, width);
}

unsigned int ballot(unsigned int mask, bool predicate) {
  return static_cast<unsigned int>(executor().exchange(Wait::ballot, mask, predicate ? 1 : 0, Source::index, 0, warp));
}

void* dynamic_shared_memory() {
  return executor().shared_memory();
}

}  // namespace ddprun::cuda::emulator
