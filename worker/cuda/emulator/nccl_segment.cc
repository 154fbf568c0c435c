#include "worker/cuda/emulator/nccl_segment.h"

#include <cstdio>
#include <fcntl.h>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace ddprun::cuda::emulator {
namespace {

std::string path_of(const SegmentName& name) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "/ddprun-emulated-nccl-%016llx%016llx",
                static_cast<unsigned long long>(name.number[0]), static_cast<unsigned long long>(name.number[1]));
  return text.data();
}

SegmentName new_name() {
  std::random_device random;
  const auto number = [&random] { return std::uint64_t{random()} << 32 | random(); };
  return {{number(), number()}};
}

// Removes, when the process ends, the names of segments that never became complete.
class OwnNames {
 public:
  ~OwnNames() {
    for (const auto& name : names_) ::shm_unlink(path_of(name).c_str());
  }
  void add(const SegmentName& name) {
    const std::lock_guard lock(mutex_);
    names_.push_back(name);
  }

 private:
  std::mutex mutex_;
  std::vector<SegmentName> names_;
};

OwnNames& own_names() {
  static OwnNames names;
  return names;
}

}  // namespace

NcclSegment::NcclSegment(const SegmentName& name, int file) : name_(name) {
  void* const memory = ::mmap(nullptr, sizeof(NcclShared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory != MAP_FAILED) shared_ = static_cast<NcclShared*>(memory);
}

NcclSegment::~NcclSegment() {
  if (shared_ != nullptr) ::munmap(shared_, sizeof(NcclShared));
}

std::shared_ptr<NcclSegment> NcclSegment::create() {
  const auto name = new_name();
  const int file = ::shm_open(path_of(name).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return nullptr;
  const bool has_size = ::ftruncate(file, sizeof(NcclShared)) == 0;
  std::shared_ptr<NcclSegment> segment(new NcclSegment(name, file));
  ::close(file);
  if (has_size && segment->shared_ != nullptr) {
    own_names().add(name);
    return segment;
  }
  ::shm_unlink(path_of(name).c_str());
  return nullptr;
}

std::shared_ptr<NcclSegment> NcclSegment::open(const SegmentName& name) {
  const int file = ::shm_open(path_of(name).c_str(), O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) return nullptr;
  std::shared_ptr<NcclSegment> segment(new NcclSegment(name, file));
  ::close(file);
  return segment->shared_ != nullptr ? segment : nullptr;
}

bool NcclSegment::complete() const {
  const int size = shared_->size;
  for (int rank = 0; rank < size; ++rank)
    if (!shared_->ranks[static_cast<std::size_t>(rank)].joined) return false;
  if (size > 0 && std::exchange(has_name_, false)) ::shm_unlink(path_of(name_).c_str());
  return size > 0;
}

bool NcclSegment::shares_a_device() const {
  std::set<std::pair<std::uint64_t, std::array<char, 32>>> seen;
  for (int rank = 0; rank < shared_->size; ++rank) {
    const NcclRank& each = shared_->ranks[static_cast<std::size_t>(rank)];
    if (!seen.emplace(each.host, each.bus_id).second) return true;
  }
  return false;
}

std::shared_ptr<NcclSegment> NcclSegment::child_without(std::uint64_t excluded) const {
  for (auto& child : shared_->children) {
    std::uint32_t free = 0;
    if (child.state.compare_exchange_strong(free, 1)) {
      const auto segment = create();
      if (!segment) return nullptr;
      child.excluded = excluded;
      child.name = segment->name();
      child.state = 2;
      return segment;
    }
    while (child.state == 1) std::this_thread::yield();
    if (child.excluded == excluded) return open(child.name);
  }
  return nullptr;
}

}  // namespace ddprun::cuda::emulator
