#include "launcher/workers/process_evidence.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "launcher/workers/sleep_watch.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string without_spaces_around(std::string text) {
  const auto begin = text.find_first_not_of(" \t");
  const auto end = text.find_last_not_of(" \t\n");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

// "1234 kB" becomes "1.2 MiB".
std::string size_text(const std::string& kilobytes) {
  double size = 0;
  std::istringstream(kilobytes) >> size;
  constexpr std::array units{"KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < units.size(); ++unit) size /= 1024;
  return fmt::format("{:.4g} {}", size, units[unit]);
}

// Takes fields 14 and 15 of proc_pid_stat(5), after the program's name, which may have spaces.
std::string processor_time(const std::string& stat) {
  const auto name_end = stat.rfind(')');
  if (name_end == std::string::npos) return "";
  std::istringstream fields(stat.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  double user = 0, system = 0;
  if (!(fields >> user >> system)) return "";
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return fmt::format("{:.2f} s in the program, {:.2f} s in the kernel", user / ticks, system / ticks);
}

std::string open_files(const fs::path& folder) {
  std::error_code failure;
  const auto count = std::distance(fs::directory_iterator(folder, failure), fs::directory_iterator());
  return failure ? "" : std::to_string(count);
}

}  // namespace

std::vector<ProcessFact> facts_of_status(std::string_view status) {
  struct Field {
    std::string_view key, name;
    bool size;
  };
  constexpr std::array fields{Field{"State", "state", false},
                              Field{"Threads", "threads", false},
                              Field{"VmRSS", "resident memory", true},
                              Field{"VmHWM", "most resident memory", true},
                              Field{"RssShmem", "shared memory", true},
                              Field{"VmSwap", "swapped out", true},
                              Field{"Cpus_allowed_list", "processors it may use", false}};
  std::vector<ProcessFact> facts;
  std::istringstream lines{std::string(status)};
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(':');
    for (const auto& field : fields) {
      if (line.substr(0, colon) != field.key) continue;
      auto value = without_spaces_around(line.substr(colon + 1));
      facts.push_back({std::string(field.name), field.size ? size_text(value) : std::move(value)});
    }
  }
  return facts;
}

std::vector<ProcessFact> process_facts(pid_t process) {
  const auto folder = fs::path("/proc") / std::to_string(process);
  auto facts = facts_of_status(text_of(folder / "status"));
  if (facts.empty()) return facts;
  const auto add = [&](const char* name, std::string value) {
    if (!value.empty()) facts.push_back({name, std::move(value)});
  };
  add("main thread waits in", wait_channel(process, process));
  add("processor time", processor_time(text_of(folder / "stat")));
  add("open files", open_files(folder / "fd"));
  return facts;
}

}  // namespace ddprun
