#pragma once

#include <string>

namespace ddprun {

// The shared library with the code for CUDA devices: libddprun_cuda.so, or libddprun_cuda_emulated.so where
// DDPRUN_CUDA_EMULATOR=N asks for N emulated devices. It is opened at the first use, and never closed. It is looked for
// where DDPRUN_CUDA_MODULE says, then beside the program and in ../lib of it.
//
// Threads: thread-safe.
// Errors: Errc::unsupported if there is none, with all places that were looked at, or the loader's reason.
class CudaModule {
 public:
  static const CudaModule& get();

  // Returns a function of the module, or of a library that it links (the CUDA runtime, NCCL). Throws Errc::unsupported
  // where there is none, naming the symbol and the module.
  template <class Function>
  Function* symbol(const char* name) const {
    return reinterpret_cast<Function*>(find(name));
  }
  // Returns the same; null where there is none.
  template <class Function>
  Function* optional_symbol(const char* name) const {
    return reinterpret_cast<Function*>(look_up(name));
  }
  bool emulated() const { return emulated_; }
  const std::string& path() const { return path_; }

 private:
  CudaModule();
  void* find(const char* name) const;
  void* look_up(const char* name) const;

  std::string path_;
  void* handle_ = nullptr;
  bool emulated_ = false;
};

}  // namespace ddprun
