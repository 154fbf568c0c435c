#include "tests/bench/collectives/shared_mapping.h"

#include <cerrno>
#include <chrono>
#include <sched.h>
#include <sys/mman.h>
#include <thread>
#include <vector>

#include "common/error.h"
#include "worker/comm/backends/shm/pause.h"

namespace ddprun::bench {
namespace {

using comm::pause_processor;

constexpr std::size_t max_ranks = 64;

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + 4095) / 4096 * 4096;
}

std::vector<int> allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof set, &set);
  std::vector<int> allowed;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) allowed.push_back(i);
  return allowed;
}

}  // namespace

struct SharedMapping::Header {
  std::array<Flag, max_ranks> arrived;
  std::array<Flag, 2> ping_pong;
  alignas(128) std::atomic<std::int64_t> broadcast;
};

SharedMapping::SharedMapping(int ranks, std::size_t buffer_bytes)
    : ranks_(ranks),
      spins_(static_cast<std::size_t>(ranks) <= allowed_processors().size() ? 20'000 : 20),
      buffer_bytes_(whole_pages(buffer_bytes)),
      slots_(whole_pages(sizeof(Header))),
      messages_(slots_ + index(ranks) * 2 * slot_bytes),
      buffers_(messages_ + index(ranks) * message_bytes),
      result_(buffers_ + index(ranks) * buffer_bytes_),
      end_(result_ + buffer_bytes_) {
  if (index(ranks) > max_ranks) throw make_error(Errc::usage, "at most {} ranks, not {}", max_ranks, ranks);
  void* const memory = ::mmap(nullptr, end_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw make_error(Errc::io, "cannot map {} bytes: {}", end_, errno_text(errno));
  data_ = static_cast<std::byte*>(memory);
}

SharedMapping::~SharedMapping() {
  ::munmap(data_, end_);
}

SharedMapping::Header& SharedMapping::header() const {
  return *reinterpret_cast<Header*>(data_);
}

void SharedMapping::await(const Flag& flag, std::uint32_t value) const {
  for (int spin = 0; static_cast<std::int32_t>(flag.value.load(std::memory_order_acquire) - value) < 0; ++spin) {
    if (spin < spins_) {
      pause_processor();
    } else {
      ::sched_yield();
    }
  }
}

void SharedMapping::barrier(int rank) {
  header().arrived[index(rank)].value.store(++barriers_, std::memory_order_release);
  for (int r = 0; r < ranks_; ++r) await(header().arrived[index(r)], barriers_);
}

std::int64_t SharedMapping::broadcast(int rank, std::int64_t value) {
  if (rank == 0) header().broadcast.store(value, std::memory_order_relaxed);
  barrier(rank);
  const auto received = header().broadcast.load(std::memory_order_relaxed);
  barrier(rank);
  return received;
}

double SharedMapping::latency_ns(int rank) {
  constexpr std::uint32_t rounds = 2000;
  auto& [ping, pong] = header().ping_pong;
  const auto start = std::chrono::steady_clock::now();
  const auto first = ping.value.load();
  barrier(rank);
  for (std::uint32_t i = first + 1; i <= first + rounds; ++i) {
    if (rank == 0) ping.value.store(i, std::memory_order_release);
    if (rank == 0 && ranks_ > 1) await(pong, i);
    if (rank == 1) await(ping, i), pong.value.store(i, std::memory_order_release);
  }
  barrier(rank);
  const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count() / rounds / 2;
}

void pin_to_processor(int rank) {
  const auto allowed = allowed_processors();
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(allowed[static_cast<std::size_t>(rank) % allowed.size()], &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

}  // namespace ddprun::bench
