#include "ddprun/worker/cuda/cuda_module.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <vector>

#include <fmt/ranges.h>

#include "ddprun/common/error.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> places(bool emulated) {
  if (const char* given = std::getenv("DDPRUN_CUDA_MODULE"); given != nullptr && *given != '\0') return {given};
  const std::string name = emulated ? "libddprun_cuda_emulated.so" : "libddprun_cuda.so";
  std::error_code ignored;
  const fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  return {folder / name, folder.parent_path() / "lib" / name};
}

}  // namespace

const CudaModule& CudaModule::get() {
  static const CudaModule module;
  return module;
}

CudaModule::CudaModule() {
  const char* emulator = std::getenv("DDPRUN_CUDA_EMULATOR");
  emulated_ = emulator != nullptr && *emulator != '\0';
  std::vector<std::string> tried;
  for (const fs::path& place : places(emulated_)) {
    tried.push_back(place.string());
    if (!fs::exists(place)) continue;
    path_ = place.string();
    handle_ = ::dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) throw make_error(Errc::unsupported, "the CUDA module cannot be opened: {}", ::dlerror());
    return;
  }
  throw make_error(Errc::unsupported, "there is no CUDA module: looked for {}", fmt::join(tried, " and "));
}

void* CudaModule::look_up(const char* name) const {
  return ::dlsym(handle_, name);
}

void* CudaModule::find(const char* name) const {
  void* const found = look_up(name);
  if (found == nullptr) throw make_error(Errc::unsupported, "the CUDA module {} has no {}", path_, name);
  return found;
}

}  // namespace ddprun
