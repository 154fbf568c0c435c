#include "ddprun/launcher/dashboard/view_commands.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <sys/ioctl.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ddprun/common/atomic_file.h"
#include "ddprun/common/error.h"
#include "ddprun/common/exit_code.h"
#include "ddprun/common/standard_output.h"
#include "ddprun/launcher/cli/subcommands.h"
#include "ddprun/launcher/control/agent_client.h"
#include "ddprun/launcher/dashboard/journal.h"
#include "ddprun/launcher/dashboard/page.h"
#include "ddprun/launcher/dashboard/screen_text.h"

namespace ddprun::dashboard {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr auto reply_timeout = 10s;
constexpr auto redraw_interval = 1s;
constexpr const char* clear_screen = "\x1b[H\x1b[2J";

int report(const SubcommandLine& line) {
  const auto journal = find_journal(line.operand);
  const auto output = line.has("output") ? fs::path(line.value("output")) : journal.parent_path() / "report.html";
  write_file_atomically(output, report_page(read_journal(journal)));
  write_standard_output(output.string() + "\n");
  return exit_success;
}

// The one agent of this machine, or of one run id. Several agents of a job know the same of it.
LocalAgent agent_of(const std::string& wanted, const Environment& environment) {
  std::vector<std::string> jobs;
  std::optional<LocalAgent> found;
  for (auto& agent : local_agents(environment, Deadline::in(reply_timeout))) {
    const auto& run_id = agent.record.own.run_id;
    if (!wanted.empty() && run_id != wanted) continue;
    if (std::find(jobs.begin(), jobs.end(), run_id) == jobs.end()) jobs.push_back(run_id);
    if (!found) found = std::move(agent);
  }
  if (jobs.size() > 1)
    throw make_error(Errc::usage, "there are several jobs ({}): choose one with --rdzv_id", fmt::join(jobs, ", "));
  if (!found) throw make_error(Errc::unreachable, "no such job of this user runs on this machine");
  return std::move(*found);
}

winsize terminal_size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return {.ws_row = 40, .ws_col = 100};
  return size;
}

std::string screen_of(const LocalAgent& agent) {
  const auto size = terminal_size();
  return screen_text(request_view(agent, Deadline::in(reply_timeout)), size.ws_col, size.ws_row);
}

// On a terminal until the agent has ended or the user interrupts it, otherwise once.
int top(const SubcommandLine& line, const Environment& environment) {
  const auto agent = agent_of(line.value("rdzv_id"), environment);
  write_standard_output(::isatty(STDOUT_FILENO) == 1 ? clear_screen + screen_of(agent) : screen_of(agent));
  while (::isatty(STDOUT_FILENO) == 1) {
    std::this_thread::sleep_for(redraw_interval);
    try {
      write_standard_output(clear_screen + screen_of(agent));
    } catch (const Error& e) {
      if (e.code() != Errc::unreachable && e.code() != Errc::connection_lost) throw;
      write_standard_output("the job has ended on this machine\n");
      break;
    }
  }
  return exit_success;
}

}  // namespace

bool is_view_command(const std::vector<std::string>& arguments) {
  return !arguments.empty() && (arguments.front() == "top" || arguments.front() == "report");
}

int run_view_command(const std::vector<std::string>& arguments, const Environment& environment) {
  const auto& subcommand = *find_subcommand(arguments.front());
  const auto line = parse_subcommand(subcommand, {arguments.begin() + 1, arguments.end()});
  if (line.has("help")) {
    write_standard_output(help_text(subcommand));
    return exit_success;
  }
  return subcommand.name == "top" ? top(line, environment) : report(line);
}

}  // namespace ddprun::dashboard
