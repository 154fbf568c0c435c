#include "worker/optim/offload.h"

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "common/error.h"
#include "common/unique_fd.h"

namespace ddprun::optim {
namespace {

UniqueFd open_unnamed_file(const std::filesystem::path& folder) {
  std::string name = (folder / "ddprun-optimizer-XXXXXX").string();
  UniqueFd file(::mkostemp(name.data(), O_CLOEXEC));
  if (!file) {
    const int error = errno;
    throw make_error(error == ENOENT || error == ENOTDIR ? Errc::usage : Errc::io,
                     "optimizer state: cannot create a file in {}: {}", folder.string(), errno_text(error));
  }
  ::unlink(name.c_str());
  return file;
}

}  // namespace

Tensor zeros_in_file(const Shape& shape, DType dtype, const std::filesystem::path& folder) {
  const auto bytes = static_cast<std::size_t>(numel(shape)) * size_of(dtype);
  if (bytes == 0) return Tensor::zeros(shape, dtype);
  const UniqueFd file = open_unnamed_file(folder);
  const auto fail = [&](const char* what, int error) {
    return make_error(Errc::io, "optimizer state: cannot {} {} bytes in {}: {}", what, bytes, folder.string(),
                      errno_text(error));
  };
  if (const int error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes))) throw fail("reserve", error);
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) throw fail("map", errno);
  const std::shared_ptr<void> owner(memory, [bytes](void* mapped) { ::munmap(mapped, bytes); });
  return Tensor::wrap(memory, shape, dtype, owner);
}

}  // namespace ddprun::optim
