#include "launcher/cli/subcommands.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "common/error.h"
#include "launcher/cli/command_line.h"

namespace ddprun {
namespace {

const OptionInfo endpoint{
    .name = "rdzv_endpoint",
    .help = "the job's rendezvous server, from any host; default: the jobs of this user on this machine",
    .value_name = "HOST[:PORT]"};
const OptionInfo help{.name = "help", .short_name = 'h', .flag = true, .help = "prints this page"};

OptionInfo run_id(std::string text) {
  return {.name = "rdzv_id", .help = std::move(text), .value_name = "ID"};
}

Subcommand status() {
  return {
      .name = "status",
      .help =
          "reports the nodes of a running job, its generation and restarts, and the process and state of each worker",
      .options = {endpoint,
                  run_id("the job's name; default: all jobs"),
                  {.name = "collectives",
                   .flag = true,
                   .help = "which operation of its process groups each rank is in, and which ranks hold it up"},
                  {.name = "json", .flag = true, .help = "prints one JSON object, {\"jobs\": [...]}"},
                  help}};
}

Subcommand stop() {
  return {.name = "stop",
          .help = "ends a job on all its nodes: SIGTERM to its workers, SIGKILL after the job's grace period",
          .options = {endpoint, run_id("the job's name, if there are several jobs"), help}};
}

Subcommand attach() {
  return {.name = "attach",
          .help =
              "follows the output of one rank of a running job: its last lines, then what it writes, until the job "
              "ends; exits with the job's exit code",
          .options = {{.name = "signal",
                       .help = "sends the rank's process this signal, such as USR1, and follows nothing",
                       .value_name = "NAME"},
                      endpoint,
                      run_id("the job's name, if there are several jobs"),
                      help},
          .operand = "RANK"};
}

Subcommand doctor() {
  return {.name = "doctor",
          .help = "examines hosts and the links between them, and names what would hinder a job",
          .options = {
              {.name = "hosts", .help = "the hosts, as for a job; default: this one", .value_name = "HOST[,HOST...]"},
              {.name = "hostfile", .help = "a file with one host per line", .value_name = "FILE"},
              {.name = "ssh", .help = "the command that connects to a host", .value_name = "COMMAND"},
              {.name = "write_hostfile", .help = "writes the hosts that passed, for --hostfile", .value_name = "FILE"},
              help}};
}

Subcommand top() {
  return {.name = "top",
          .help = "shows a running job of this machine as text: what it does, its curves, ranks, recoveries and events",
          .options = {run_id("the job's name, if there are several jobs"), help}};
}

Subcommand dashboard() {
  return {.name = "dashboard",
          .help = "serves the page of a job that runs, also of one on other hosts, until it is interrupted",
          .options = {endpoint,
                      run_id("the job's name, if there are several jobs or its agents have a token"),
                      {.name = "rdzv_conf",
                       .help = "token_file=FILE if the job's agents have it, and tls=off",
                       .value_name = "KEY=VALUE[,KEY=VALUE...]"},
                      {.name = "dashboard",
                       .help = "where the page is served; default: a free port of the loopback interface",
                       .value_name = "[ADDRESS:]PORT"},
                      {.name = "dashboard_token_file",
                       .help = "a file with the page's token, made if there is none; default: a new token",
                       .value_name = "FILE"},
                      help}};
}

Subcommand report() {
  return {.name = "report",
          .help = "writes the page of a job, also of one that was killed, from LOGDIR, the --log_dir it had",
          .options = {{.name = "output",
                       .help = "the HTML file to write; default: report.html beside the job's record",
                       .value_name = "FILE"},
                      help},
          .operand = "LOGDIR"};
}

}  // namespace

const std::vector<Subcommand>& subcommands() {
  static const std::vector<Subcommand> all{status(), stop(), attach(), top(), dashboard(), report(), doctor()};
  return all;
}

const Subcommand* find_subcommand(std::string_view name) {
  const auto found = std::find_if(subcommands().begin(), subcommands().end(),
                                  [&](const Subcommand& subcommand) { return subcommand.name == name; });
  return found == subcommands().end() ? nullptr : &*found;
}

std::string SubcommandLine::value(std::string_view option) const {
  const auto found = values.find(option);
  return found == values.end() ? "" : found->second;
}

SubcommandLine parse_subcommand(const Subcommand& subcommand, const std::vector<std::string>& arguments) {
  SubcommandLine line;
  std::vector<std::string> words;
  // Options may also follow a word.
  for (auto rest = arguments; !rest.empty();) {
    const auto form = normal_form(rest, subcommand.options);
    for (const auto& option : form.options) {
      auto given = given_option(option);
      line.values[given.name] = given.value.value_or("");
    }
    rest.clear();
    if (form.command.empty()) break;
    words.push_back(form.command.front());
    rest.assign(form.command.begin() + 1, form.command.end());
  }
  const std::size_t operands = subcommand.operand.empty() ? 0 : 1;
  if (words.size() > operands)
    throw make_error(Errc::usage, "ddprun {}: superfluous argument '{}'; a program of that name is started as ./{}",
                     subcommand.name, words[operands], subcommand.name);
  if (!words.empty()) line.operand = words.front();
  if (line.operand.empty() && operands > 0 && !line.has("help"))
    throw make_error(Errc::usage, "ddprun {}: expected {}; see ddprun {} --help", subcommand.name, subcommand.operand,
                     subcommand.name);
  return line;
}

std::string help_text(const Subcommand& subcommand) {
  auto usage = "usage: ddprun " + subcommand.name;
  std::string lines;
  for (const auto& option : subcommand.options) {
    usage += fmt::format(" [--{}{}]", option.name, option.flag ? "" : "=" + option.value_name);
    lines += fmt::format("  --{:<15} {}\n", option.name, option.help);
  }
  if (!subcommand.operand.empty()) usage += " " + subcommand.operand;
  return fmt::format("{}\n\n{}: {}.\n\n{}\nA program named {} is started as ./{}.\n", usage, subcommand.name,
                     subcommand.help, lines, subcommand.name, subcommand.name);
}

}  // namespace ddprun
