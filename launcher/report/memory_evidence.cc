#include "launcher/report/memory_evidence.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <sstream>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "common/atomic_file.h"
#include "common/error.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool lists(std::string_view text, std::string_view word) {
  for (const auto part : split(text, ','))
    if (part == word) return true;
  return false;
}

// A cgroup's path in the hierarchy of the memory controller, from "4:memory:/a" (version 1) or "0::/b" (version 2).
struct CgroupPath {
  std::string_view path;
  bool unified = true;
};
std::optional<CgroupPath> cgroup_path(std::string_view cgroup) {
  std::optional<CgroupPath> unified;
  for (const auto line : split(cgroup, '\n')) {
    const auto first = line.find(':');
    const auto second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    if (lists(controllers, "memory")) return CgroupPath{line.substr(second + 1), false};
    if (controllers.empty()) unified = CgroupPath{line.substr(second + 1), true};
  }
  return unified;
}

// One line of mountinfo: "36 35 98:0 ROOT POINT options [optional fields] - TYPE source SUPER-OPTIONS".
struct Mount {
  std::string_view root;
  std::string_view point;
};
std::optional<Mount> mount_of(std::string_view line, bool unified) {
  const auto fields = split(line, ' ');
  std::size_t dash = 6;
  while (dash < fields.size() && fields[dash] != "-") ++dash;
  if (dash + 3 >= fields.size()) return std::nullopt;
  const bool matches =
      unified ? fields[dash + 1] == "cgroup2" : fields[dash + 1] == "cgroup" && lists(fields[dash + 3], "memory");
  return matches ? std::optional(Mount{fields[3], fields[4]}) : std::nullopt;
}

// A cgroup's folder below a mount, which in a container may show only a part of the tree.
fs::path folder_below(const Mount& mount, std::string_view path) {
  const auto root = mount.root == "/" ? std::string_view() : mount.root;
  path = path.starts_with(root) ? path.substr(root.size()) : std::string_view();
  fs::path folder(mount.point);
  while (path.starts_with('/')) path.remove_prefix(1);
  return path.empty() ? folder : folder / path;
}

std::string text_of(const fs::path& path) {
  try {
    return read_whole_file(path);
  } catch (const Error&) {
    return {};
  }
}

// The number after the first occurrence of a key.
std::optional<std::int64_t> number_after(std::string_view text, std::string_view key) {
  const auto at = text.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  std::int64_t value = 0;
  const auto* begin = text.data() + at + key.size();
  const auto [end, status] = std::from_chars(begin, text.data() + text.size(), value);
  return status == std::errc{} ? std::optional(value) : std::nullopt;
}

// The kernel's log has process ids of the initial namespace.
bool in_first_pid_namespace() {
  std::error_code failure;
  return fs::read_symlink("/proc/self/ns/pid", failure) == "pid:[4026531836]";
}

}  // namespace

std::optional<MemoryCgroup> memory_cgroup(std::string_view cgroup, std::string_view mountinfo) {
  const auto path = cgroup_path(cgroup);
  if (!path) return std::nullopt;
  for (const auto line : split(mountinfo, '\n'))
    if (const auto mount = mount_of(line, path->unified))
      return MemoryCgroup{
          .folder = folder_below(*mount, path->path), .unified = path->unified, .name = std::string(path->path)};
  return std::nullopt;
}

std::optional<std::int64_t> oom_kills(std::string_view text) {
  for (const auto line : split(text, '\n'))
    if (line.starts_with("oom_kill ")) return number_after(line, "oom_kill ");
  return std::nullopt;
}

std::optional<KernelKill> parse_kernel_kill(std::string_view record) {
  const auto pid = number_after(record, "Killed process ");
  if (!pid) return std::nullopt;
  const auto kib = [&](std::string_view key) { return number_after(record, key).value_or(0); };
  return KernelKill{.pid = static_cast<pid_t>(*pid),
                    .resident_kib = kib("anon-rss:") + kib("file-rss:") + kib("shmem-rss:"),
                    .by_cgroup_limit = record.find("Memory cgroup out of memory") != std::string_view::npos};
}

std::string memory_text(std::int64_t kib) {
  constexpr std::int64_t mebibyte = 1024;
  constexpr std::int64_t gibibyte = 1024 * mebibyte;
  if (kib >= 10 * gibibyte) return fmt::format("{} GiB", kib / gibibyte);
  return kib >= 10 * mebibyte ? fmt::format("{} MiB", kib / mebibyte) : fmt::format("{} KiB", kib);
}

MemoryEvidence::Sources MemoryEvidence::Sources::of_this_process() {
  Sources sources{.cgroup = memory_cgroup(text_of("/proc/self/cgroup"), text_of("/proc/self/mountinfo"))};
  if (in_first_pid_namespace() && ::access("/dev/kmsg", R_OK) == 0) sources.kernel_log = "/dev/kmsg";
  return sources;
}

MemoryEvidence::MemoryEvidence(Sources sources) : sources_(std::move(sources)) {}

void MemoryEvidence::begin() {
  kills_before_ = sources_.cgroup ? oom_kills(text_of(sources_.cgroup->counter())) : std::nullopt;
  if (sources_.kernel_log.empty()) return;
  if (!log_) log_ = UniqueFd(::open(sources_.kernel_log.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (log_) ::lseek(log_.get(), 0, SEEK_END);
}

void MemoryEvidence::leave_out_kill() {
  if (!kills_before_) return;
  const auto kills = oom_kills(text_of(sources_.cgroup->counter()));
  if (kills && *kills > *kills_before_) ++*kills_before_;
}

// The setting of a parent holds for its children too.
bool MemoryEvidence::kills_whole_cgroup() const {
  if (!sources_.cgroup || !sources_.cgroup->unified) return false;
  for (auto folder = sources_.cgroup->folder; folder != folder.root_path(); folder = folder.parent_path())
    if (number_after(text_of(folder / "memory.oom.group"), "").value_or(0) != 0) return true;
  return false;
}

// Each read returns one record; EPIPE means that records were overwritten before they were read.
std::optional<KernelKill> MemoryEvidence::find_in_log(pid_t pid) {
  if (!log_) return std::nullopt;
  char record[8192];
  for (;;) {
    const auto got = ::read(log_.get(), record, sizeof(record));
    if (got < 0 && (errno == EPIPE || errno == EINTR)) continue;
    if (got <= 0) return std::nullopt;
    const auto kill = parse_kernel_kill({record, static_cast<std::size_t>(got)});
    if (kill && kill->pid == pid) return kill;
  }
}

// Without a limit the file has "max" (version 2) or the largest number (version 1).
std::string MemoryEvidence::limit_text() const {
  if (!sources_.cgroup) return {};
  const auto text = text_of(sources_.cgroup->limit());
  const auto bytes = number_after(text, "");
  if (!bytes || *bytes > (std::int64_t{1} << 60)) return fmt::format(" (cgroup {})", sources_.cgroup->name);
  return fmt::format(" (cgroup {} has a limit of {})", sources_.cgroup->name, memory_text(*bytes / 1024));
}

MemoryEvidence::Finding MemoryEvidence::about(pid_t pid, std::int64_t peak_kib) {
  using Answer = Finding::Answer;
  if (const auto kill = find_in_log(pid)) {
    const auto why = kill->by_cgroup_limit ? limit_text() : "; the whole machine was out of memory";
    return {Answer::yes,
            fmt::format("out of memory: the kernel killed it at {}{}", memory_text(kill->resident_kib), why)};
  }
  if (!kills_before_) return {};
  const auto kills = oom_kills(text_of(sources_.cgroup->counter()));
  if (!kills) return {};
  if (*kills <= *kills_before_) return {Answer::no, ""};
  return {Answer::yes, fmt::format("out of memory: killed by the kernel with at most {} resident{}",
                                   memory_text(peak_kib), limit_text())};
}

}  // namespace ddprun
