#include "launcher/placement/affinity.h"

#include <cerrno>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/error.h"

namespace ddprun {
namespace {

constexpr std::size_t bits = 8 * sizeof(unsigned long);
constexpr std::size_t most_words = 65536 / bits;

}  // namespace

// The system calls are used directly, because the C library's type is limited to 1,024 processors.
CpuList current_affinity() {
  for (std::size_t size = 1024 / bits; size <= most_words; size *= 2) {
    std::vector<unsigned long> words(size);
    const long got = ::syscall(SYS_sched_getaffinity, 0, size * sizeof(unsigned long), words.data());
    if (got < 0 && errno == EINVAL) continue;  // the kernel has a larger mask
    if (got < 0) break;
    CpuList cpus;
    for (std::size_t bit = 0; bit < static_cast<std::size_t>(got) * 8; ++bit)
      if ((words[bit / bits] >> (bit % bits) & 1) != 0) cpus.push_back(static_cast<int>(bit));
    return cpus;
  }
  throw make_error(Errc::io, "cannot read the processor affinity: {}", errno_text(errno));
}

CpuMask::CpuMask(const CpuList& cpus) {
  for (const int cpu : cpus) {
    const auto bit = static_cast<std::size_t>(cpu);
    if (words_.size() <= bit / bits) words_.resize(bit / bits + 1);
    words_[bit / bits] |= 1UL << (bit % bits);
  }
}

int CpuMask::apply_to(pid_t thread) const noexcept {
  const auto bytes = words_.size() * sizeof(unsigned long);
  return ::syscall(SYS_sched_setaffinity, thread, bytes, words_.data()) == 0 ? 0 : errno;
}

}  // namespace ddprun
