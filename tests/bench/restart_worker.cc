// usage: ddprun-bench-worker FIFO: writes one record, then waits for the signal that ends it.
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <unistd.h>

#include "tests/bench/restart_record.h"

namespace {

int number(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : 0;
}

}  // namespace

int main(int argc, char** argv) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const ddprun::bench::RestartRecord record{.pid = ::getpid(),
                                            .rank = number("RANK"),
                                            .attempt = number("TORCHELASTIC_RESTART_COUNT"),
                                            .time_ns = now.tv_sec * 1'000'000'000LL + now.tv_nsec};
  const int fifo = argc == 2 ? ::open(argv[1], O_WRONLY | O_CLOEXEC) : -1;
  if (fifo < 0 || ::write(fifo, &record, sizeof record) != sizeof record) return 90;
  for (;;) ::pause();
}
