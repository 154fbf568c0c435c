#include "ddprun/worker/cuda/emulator/nccl_segment.h"

#include <fcntl.h>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace ddprun::cuda::emulator {
namespace {

// Others open a segment through the process that made it, as long as that lives.
void keep(std::shared_ptr<NcclSegment> segment) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<NcclSegment>>;  // never destroyed: used until the end
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(segment));
}

}  // namespace

NcclSegment::NcclSegment(int file) : file_(file) {
  void* const memory = ::mmap(nullptr, sizeof(NcclShared), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (memory != MAP_FAILED) shared_ = static_cast<NcclShared*>(memory);
}

NcclSegment::~NcclSegment() {
  if (shared_ != nullptr) ::munmap(shared_, sizeof(NcclShared));
  ::close(file_);
}

std::shared_ptr<NcclSegment> NcclSegment::create() {
  const int file = ::memfd_create("ddprun-emulated-nccl", MFD_CLOEXEC);
  if (file < 0) return nullptr;
  if (::ftruncate(file, sizeof(NcclShared)) != 0) {
    ::close(file);
    return nullptr;
  }
  const std::shared_ptr<NcclSegment> segment(new NcclSegment(file));
  if (segment->shared_ == nullptr) return nullptr;
  keep(segment);
  return segment;
}

std::shared_ptr<NcclSegment> NcclSegment::open(const SegmentName& name) {
  const auto path = "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  std::shared_ptr<NcclSegment> segment(new NcclSegment(file));
  return segment->shared_ != nullptr ? segment : nullptr;
}

SegmentName NcclSegment::name() const {
  return {.process = ::getpid(), .file = file_};
}

bool NcclSegment::complete() const {
  const int size = shared_->size;
  for (int rank = 0; rank < size; ++rank)
    if (!shared_->ranks[static_cast<std::size_t>(rank)].joined) return false;
  return size > 0;
}

bool NcclSegment::shares_a_device() const {
  std::set<std::array<char, 32>> seen;
  for (int rank = 0; rank < shared_->size; ++rank)
    if (!seen.insert(shared_->ranks[static_cast<std::size_t>(rank)].bus_id).second) return true;
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
