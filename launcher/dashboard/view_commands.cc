#include "launcher/dashboard/view_commands.h"

#include <chrono>
#include <filesystem>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "common/atomic_file.h"
#include "common/error.h"
#include "common/exit_code.h"
#include "common/standard_output.h"
#include "launcher/cli/subcommands.h"
#include "launcher/control/agent_client.h"
#include "launcher/dashboard/attach_command.h"
#include "launcher/dashboard/job_view.h"
#include "launcher/dashboard/journal.h"
#include "launcher/dashboard/local_agent.h"
#include "launcher/dashboard/page.h"
#include "launcher/dashboard/screen_text.h"

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

winsize terminal_size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return {.ws_row = 40, .ws_col = 100};
  return size;
}

std::string screen_of(const std::string& view) {
  const auto size = terminal_size();
  return screen_text(view, size.ws_col, size.ws_row);
}

// Draws the view anew each second until the job has ended on this machine, and prints how it ended.
class LiveScreen {
 public:
  explicit LiveScreen(LocalAgent agent) : agent_(std::move(agent)), end_(await_end(agent_)) {}

  void show() {
    draw(request_view(agent_, Deadline::in(reply_timeout)));
    try {
      while (!ended()) draw(request_view(agent_, Deadline::in(reply_timeout)));
    } catch (const Error& e) {
      if (e.code() != Errc::unreachable && e.code() != Errc::connection_lost) throw;
      report_silence();
    }
  }

 private:
  // Waits for a second, or less if the job ends.
  bool ended() {
    const auto last = last_view(end_.get(), Deadline::in(redraw_interval));
    if (!last) return false;
    draw(*last);
    write_standard_output("the job has ended on this machine\n");
    return true;
  }

  void draw(const std::string& view) {
    write_standard_output(clear_screen + screen_of(view));
    heard_ = std::chrono::steady_clock::now();
  }

  void report_silence() const {
    const auto age = std::chrono::duration<double>(std::chrono::steady_clock::now() - heard_).count();
    write_standard_output(fmt::format("the agent has ended without a word, as one that was killed: last heard {} ago\n",
                                      duration_text(age)));
  }

  const LocalAgent agent_;
  const UniqueFd end_;
  std::chrono::steady_clock::time_point heard_;
};

int top(const SubcommandLine& line, const Environment& environment) {
  const auto agent = local_agent(line.value("rdzv_id"), environment);
  if (::isatty(STDOUT_FILENO) == 1)
    LiveScreen(agent).show();
  else
    write_standard_output(screen_of(request_view(agent, Deadline::in(reply_timeout))));
  return exit_success;
}

}  // namespace

bool is_view_command(const std::vector<std::string>& arguments) {
  return !arguments.empty() &&
         (arguments.front() == "top" || arguments.front() == "report" || arguments.front() == "dashboard");
}

int run_view_command(const std::vector<std::string>& arguments, const Environment& environment) {
  const auto& subcommand = *find_subcommand(arguments.front());
  const auto line = parse_subcommand(subcommand, {arguments.begin() + 1, arguments.end()});
  if (line.has("help")) {
    write_standard_output(help_text(subcommand));
    return exit_success;
  }
  if (subcommand.name == "dashboard") return attach_dashboard(line, environment);
  return subcommand.name == "top" ? top(line, environment) : report(line);
}

}  // namespace ddprun::dashboard
