#include "ddprun/launcher/control/runtime_folder.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace ddprun {
namespace {

namespace fs = std::filesystem;

// lstat: another user may have put a symbolic link there.
bool is_private_folder(const fs::path& folder) {
  struct stat info {};
  return ::lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

std::optional<pid_t> owner_of(const fs::path& socket) {
  const auto name = socket.filename().string();
  pid_t pid = 0;
  const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), pid);
  const bool named = status == std::errc{} && pid > 0 && std::string_view(end) == ".sock";
  return named ? std::optional(pid) : std::nullopt;
}

}  // namespace

std::vector<fs::path> runtime_folders(const Environment& environment) {
  if (const auto only = environment.get("DDPRUN_RUNTIME_DIR"); only && !only->empty()) return {fs::path(*only)};
  std::vector<fs::path> folders;
  const auto uid = std::to_string(::geteuid());
  if (const auto own = environment.get("XDG_RUNTIME_DIR"); own && !own->empty())
    folders.push_back(fs::path(*own) / "ddprun");
  if (const auto system = fs::path("/run/user") / uid / "ddprun"; folders.empty() || folders[0] != system)
    folders.push_back(system);
  folders.push_back("/tmp/ddprun-" + uid);
  return folders;
}

std::optional<fs::path> own_runtime_folder(const Environment& environment) {
  for (const auto& folder : runtime_folders(environment)) {
    ::mkdir(folder.c_str(), S_IRWXU);
    if (is_private_folder(folder)) return folder;
  }
  return std::nullopt;
}

std::vector<fs::path> agent_sockets(const fs::path& folder) {
  std::vector<fs::path> sockets;
  if (!is_private_folder(folder)) return sockets;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const auto pid = owner_of(entry.path());
    if (!pid) continue;
    if (::kill(*pid, 0) == 0 || errno != ESRCH)
      sockets.push_back(entry.path());
    else
      fs::remove(entry.path(), ignored);
  }
  std::sort(sockets.begin(), sockets.end());
  return sockets;
}

}  // namespace ddprun
