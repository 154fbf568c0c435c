#include "worker/plugin/load.h"

#include <dlfcn.h>
#include <exception>
#include <string>
#include <string_view>

#include "common/error.h"
#include "common/version.h"

namespace ddprun::plugin {
namespace {

// Returns the loader's reason without the path with which it begins.
std::string loader_error(std::string_view path) {
  std::string_view text = ::dlerror();
  if (text.starts_with(path)) text.remove_prefix(path.size());
  if (text.starts_with(": ")) text.remove_prefix(2);
  return std::string(text);
}

class Library {
 public:
  explicit Library(const std::filesystem::path& path) : path_(path.string()) {
    // The library is never closed: what it made may live as long as the process.
    handle_ = ::dlopen(std::filesystem::absolute(path).c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle_)
      throw make_error(Errc::usage, "{}: {}", path_, loader_error(std::filesystem::absolute(path).string()));
  }

  template <class Function>
  Function* function(const char* name) const {
    void* address = ::dlsym(handle_, name);
    if (!address) throw make_error(Errc::usage, "{}: does not export {}", path_, name);
    return reinterpret_cast<Function*>(address);
  }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  void* handle_ = nullptr;
};

void check_version(const Library& library) {
  const std::string_view version = library.function<const char*()>("ddprun_plugin_version")();
  if (version != project_version())
    throw make_error(Errc::usage, "{}: was built for ddprun {}, this is {}: build it again", library.path(), version,
                     project_version());
  if (library.function<std::uint64_t()>("ddprun_plugin_layout")() != layout_fingerprint())
    throw make_error(Errc::usage, "{}: was built with other headers or options than this ddprun {}: build it again",
                     library.path(), version);
}

}  // namespace

Registry load(const std::filesystem::path& path) {
  const Library library(path);
  auto* const registration = library.function<void(Registry&)>("ddprun_register");
  check_version(library);
  Registry registry;
  try {
    registration(registry);
  } catch (const std::exception& e) {
    throw make_error(Errc::usage, "{}: ddprun_register: {}", library.path(), e.what());
  } catch (...) {
    throw make_error(Errc::usage, "{}: ddprun_register threw an exception of an unknown type", library.path());
  }
  return registry;
}

}  // namespace ddprun::plugin
