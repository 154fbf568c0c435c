#include "worker/cuda/cuda_module.h"

#include <array>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include "common/error.h"

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

// A library that the module links or looks up functions in.
struct Library {
  std::string_view file;  // the beginning of its name; functions: that of its functions' names
  std::string_view functions;
  std::string_view name;
};
constexpr std::array<Library, 4> libraries{{{"libcudart", "cuda", "the CUDA runtime"},
                                            {"libcublasLt", "cublasLt", "cuBLASLt"},
                                            {"libcudnn", "cudnn", "cuDNN"},
                                            {"libnccl", "nccl", "NCCL"}}};

// Returns the loader's reason in terms of what the user has to do.
std::string advice_on(std::string_view reason) {
  const auto file = reason.substr(0, reason.find(':'));
  for (const Library& library : libraries) {
    if (!file.starts_with(library.file) || reason.find("cannot open shared object file") == reason.npos) continue;
    return fmt::format(
        "; {} of the version that the module was built with is not installed, or LD_LIBRARY_PATH does "
        "not name its folder",
        library.name);
  }
  for (const Library& library : libraries)
    if (reason.find(fmt::format("undefined symbol: {}", library.functions)) != reason.npos)
      return fmt::format("; {} here is of another version than the module was built with", library.name);
  return "";
}

// Returns "; NCCL here is of another version than this program needs".
std::string advice_on_missing(std::string_view function) {
  for (const Library& library : libraries)
    if (function.starts_with(library.functions))
      return fmt::format("; {} here is of another version than this program needs", library.name);
  return "";
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
    if (handle_ != nullptr) return;
    const std::string reason = ::dlerror();
    throw make_error(Errc::unsupported, "the CUDA module {} cannot be opened: {}{}", path_, reason, advice_on(reason));
  }
  throw make_error(Errc::unsupported, "there is no CUDA module: looked for {}", fmt::join(tried, " and "));
}

void* CudaModule::look_up(const char* name) const {
  return ::dlsym(handle_, name);
}

void* CudaModule::find(const char* name) const {
  void* const found = look_up(name);
  if (found == nullptr)
    throw make_error(Errc::unsupported, "the CUDA module {} has no {}{}", path_, name, advice_on_missing(name));
  return found;
}

}  // namespace ddprun
