#include "worker/comm/backends/mpi/mpi_library.h"

#include <array>
#include <chrono>
#include <condition_variable>
#include <dlfcn.h>
#include <filesystem>
#include <memory>
#include <optional>

#include "common/blocked_signals.h"
#include "common/environment.h"
#include "common/error.h"
#include "worker/comm/backends/mpi/bounded_call.h"
#include "worker/comm/backends/mpi/mpi_environment.h"
#include "worker/comm/reduce/reduce_kernels.h"

namespace ddprun::comm {
namespace {

namespace fs = std::filesystem;

constexpr std::array names = {"openmpi", "mpich"};

// Looks for the module beside the program, where it is installed or built.
std::optional<fs::path> module_of(std::string_view mpi) {
  const auto file = "libddprun_mpi_" + std::string(mpi) + ".so";
  std::error_code none;
  const auto program = fs::read_symlink("/proc/self/exe", none).parent_path();
  for (const auto& folder :
       {program / ".." / "lib", program / ".." / DDPRUN_MODULE_FOLDER, program, fs::path(DDPRUN_MODULE_BUILD_FOLDER)}) {
    if (fs::exists(folder / file, none)) return folder / file;
  }
  return std::nullopt;
}

// Returns the MPI that started this process, or else one that this build has.
std::string wanted_mpi() {
  auto mpi = mpi_of(Environment::capture());
  if (!mpi.empty()) return mpi;
  for (const auto* name : names)
    if (module_of(name)) return name;
  return names[0];
}

// The module's symbols are global, since Open MPI loads parts of its own that look them up globally.
const MpiFunctions* load(const std::string& mpi) {
  const auto file = module_of(mpi);
  if (!file) {
    throw make_error(Errc::usage, "this build has no module for the MPI {}: it was not installed when ddprun was built",
                     mpi);
  }
  void* const module = ::dlopen(file->c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!module) throw make_error(Errc::unsupported, "cannot load {}: {}", file->string(), ::dlerror());
  const auto* const functions = static_cast<const MpiFunctions*>(::dlsym(module, MpiFunctions::symbol));
  if (!functions || functions->version != MpiFunctions::current_version)
    throw make_error(Errc::unsupported, "{} belongs to another version of ddprun", file->string());
  return functions;
}

}  // namespace

bool mpi_available() {
  return module_of(wanted_mpi()).has_value();
}

MpiLibrary& MpiLibrary::instance(std::chrono::milliseconds bound) {
  static MpiLibrary library(bound);
  return library;
}

MpiLibrary::MpiLibrary(std::chrono::milliseconds bound)
    : bound_(bound), module_(*load(wanted_mpi())), calls_(module_), thread_(std::make_unique<MpiThread>()) {
  initialize();
  check(calls_.call<&MpiFunctions::world>(&rank_, &size_, &tag_upper_bound_), "MPI_Comm_rank");
}

void MpiLibrary::initialize() {
  const auto wanted = wanted_thread_level(Environment::capture());
  auto level = ThreadLevel::single;
  bool by_program = false;
  int code = 0;
  {
    const BoundedCall bounded("MPI_Init_thread", bound_);
    thread_->run([&] { code = module_.initialize(&comm::reduce, wanted, &level, &by_program); });
  }
  concurrent_ = level == ThreadLevel::multiple;
  if (level < ThreadLevel::serialized) {
    if (by_program)
      throw make_error(Errc::unsupported,
                       "the program has called MPI_Init of the MPI {}, which so allows calls from one thread only; "
                       "MPI_Init_thread with MPI_THREAD_SERIALIZED is needed",
                       name());
    calls_.run_on(*thread_);
  }
  check(code, "MPI_Init_thread");
}

MpiLibrary::~MpiLibrary() {
  if (abandoned_) {  // the thread may be in a call that does not return
    [[maybe_unused]] auto* const left_to_mpi = thread_.release();
    return;
  }
  const BoundedCall bounded("MPI_Finalize", bound_);
  thread_->run([this] { module_.finalize(); });
}

void MpiLibrary::broadcast_in_world(void* data, int bytes, int root) {
  const BoundedCall bounded("MPI_Bcast", bound_);
  const std::lock_guard lock(mutex_);
  check(calls_.call<&MpiFunctions::broadcast_in_world>(data, bytes, root), "MPI_Bcast");
}

MpiLibrary::Host MpiLibrary::host() {
  Host found;
  const BoundedCall bounded("MPI_Comm_split_type", bound_);
  const std::lock_guard lock(mutex_);
  check(calls_.call<&MpiFunctions::host>(&found.rank, &found.size), "MPI_Comm_split_type");
  return found;
}

void MpiLibrary::fail(int code, std::string_view what) const {
  char text[256];
  calls_.call<&MpiFunctions::error_text>(code, text);
  throw make_error(Errc::connection_lost, "{} failed: {}", what, text);
}

// Runs on a thread of its own, as MPI cannot interrupt it: the thread remains when a peer never makes the call.
MpiFunctions::Communicator MpiLibrary::create_communicator(const std::vector<int>& ranks, int tag,
                                                           const std::function<void()>& give_up) {
  struct Creation {
    std::mutex mutex;
    std::condition_variable done;
    std::optional<int> code;
    MpiFunctions::Communicator created = 0;
  };
  const auto creation = std::make_shared<Creation>();
  auto create = [this, creation, ranks, tag] {
    auto exclusive = std::unique_lock(mutex_, std::defer_lock);
    if (!concurrent_) exclusive.lock();
    const int code = calls_.call<&MpiFunctions::create_communicator>(ranks.data(), static_cast<int>(ranks.size()), tag,
                                                                     &creation->created);
    const std::lock_guard lock(creation->mutex);
    creation->code = code;
    creation->done.notify_all();
  };
  auto thread = start_signal_free_thread(std::move(create));
  std::unique_lock lock(creation->mutex);
  try {
    while (!creation->done.wait_for(lock, std::chrono::milliseconds(20), [&] { return creation->code.has_value(); }))
      give_up();
  } catch (...) {
    abandon();
    thread.detach();
    throw;
  }
  lock.unlock();
  thread.join();
  check(*creation->code, "MPI_Comm_create_group");
  return creation->created;
}

}  // namespace ddprun::comm
