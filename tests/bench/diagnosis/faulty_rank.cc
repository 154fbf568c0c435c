// A rank of a job whose ranks reduce values, again and again. Once the file exists, one of them has a fault:
//   ddprun-faulty-rank RANK FILE exit|abort|memory|sleep|collective
// exit: it exits with code 7. abort: it ends by SIGABRT. memory: it allocates without end. sleep: it waits in
// uninterruptible sleep for ever. collective: it calls another operation than the others.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "common/environment.h"
#include "worker/comm/collectives.h"
#include "worker/comm/error_file.h"
#include "worker/comm/init.h"

using namespace ddprun;

namespace {

constexpr int fault_exit_code = 7;
constexpr std::size_t block_bytes = std::size_t{4} << 20;

[[noreturn]] void allocate_without_end() {
  std::vector<std::unique_ptr<char[]>> blocks;
  for (;;) {
    blocks.push_back(std::make_unique<char[]>(block_bytes));
    std::memset(blocks.back().get(), 1, block_bytes);
  }
}

// A process that has called vfork() sleeps uninterruptibly until its child ends.
[[noreturn]] void sleep_in_kernel() {
  for (;;)
    if (::vfork() == 0)
      for (;;) ::pause();
}

void have_fault(const std::string& fault, ProcessGroup& group) {
  if (fault == "exit") std::_Exit(fault_exit_code);
  if (fault == "abort") std::abort();
  if (fault == "memory") allocate_without_end();
  if (fault == "sleep") sleep_in_kernel();
  std::vector<float> values(100);
  group.broadcast(span_of(values), group.rank(), {.blocking = true});
}

// The fault that a rank has once the file exists.
struct Fault {
  int rank;
  const char* file;
  std::string kind;
};

void reduce_until(const Fault& fault) {
  const auto world = init_process_group({.env = WorkerEnv::from(Environment::capture())});
  auto& group = world->group();
  const bool has_fault = group.rank() == fault.rank;
  std::vector<float> values(1000, 1.0F);
  for (bool first = true;; first = false) {
    if (has_fault && ::access(fault.file, F_OK) == 0) have_fault(fault.kind, group);
    group.allreduce(span_of(values), ReduceOp::average, {.blocking = true});
    if (first && group.rank() == 0) std::puts("running");
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: ddprun-faulty-rank RANK FILE exit|abort|memory|sleep|collective\n", stderr);
    return 2;
  }
  return record([&] { reduce_until({.rank = std::atoi(argv[1]), .file = argv[2], .kind = argv[3]}); });
}
