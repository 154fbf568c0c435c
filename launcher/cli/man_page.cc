#include "launcher/cli/man_page.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

namespace ddprun {
namespace {

// Escapes text for groff. REQUIRES: no line begins with '.' or an apostrophe.
std::string literal(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\')
      result += "\\e";
    else if (c == '-')
      result += "\\-";
    else
      result += c;
  }
  return result;
}

std::string spelling(const OptionHelp& option) {
  auto text = option.short_name ? fmt::format("\\fB\\-{}\\fR, ", option.short_name) : std::string();
  text += "\\fB\\-\\-" + literal(option.name) + "\\fR";
  if (option.flag) return text;
  const bool choice = !option.values.empty() && option.values.size() <= 3;
  return text + "=\\fI" + (choice ? literal(fmt::format("{}", fmt::join(option.values, "|"))) : "VALUE") + "\\fR";
}

std::string capitalised(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

std::string paragraphs(const std::vector<OptionHelp>& options) {
  std::string text;
  for (const auto& option : options)
    text += ".TP\n" + spelling(option) + "\n" + literal(capitalised(option.help)) + ".\n";
  return text;
}

constexpr const char* head = R"(.SH NAME
ddprun \- starts, places, watches and restarts the processes of a distributed training job
.SH SYNOPSIS
.B ddprun
.RI [ options ]
.IR train.cfg | script.py | program
.RI [ arguments ...]
.br
.B ddprun
.IR command
.RI [ options ]
.SH DESCRIPTION
Starts workers on this node, exports their ranks and the address of their store to them, merges their output, and ends
or restarts the whole job when one of them fails. With several nodes the same command is started on each.
.PP
The first argument that is not an option decides what runs: one that ends in
.I .cfg
is run by the built\-in worker
.BR ddprun\-worker ,
one that ends in
.I .py
is run by the Python interpreter, anything else is a program. Options and environment are torchrun's. In
an argument the text ${local_rank} is replaced by the worker's local rank.
.SH OPTIONS
A name may be written with dashes or underscores and shortened as long as it stays unique. Each option can also be set by
the environment variable
.BI PET_ NAME
in capitals (a flag: 0 is off, another integer on) and, without the dashes, in the
.B [launch]
section of a train.cfg. The command line overrides the environment, which overrides the file.
)";

constexpr const char* tail = R"(.SH ENVIRONMENT
.TP
.B PYTHON_EXEC
The Python interpreter; default: that of the virtual environment into which ddprun is installed, else python3.
.TP
.B LOGLEVEL
How much ddprun logs: DEBUG, INFO (default), WARNING, ERROR.
.TP
.B TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE
As PET_LOG_LINE_PREFIX_TEMPLATE, which overrides it.
.TP
.B TORCH_ELASTIC_SHUTDOWN_TIMEOUT
As PET_SHUTDOWN_TIMEOUT, which overrides it.
.TP
.B TORCHELASTIC_ERROR_FILE
A file in which ddprun writes the root cause of a failure, for a scheduler.
.TP
.B TORCHELASTIC_ENABLE_FILE_TIMER
1: workers may set timers over the named pipe in TORCHELASTIC_TIMER_FILE.
.SH EXIT STATUS
.TP
.B 0
All workers of all nodes ended with 0.
.TP
.BI 128+ n
The first worker that failed was ended by signal
.IR n ,
or ddprun itself was stopped by it.
.TP
.B 1
Rendezvous, store, a timeout, a lost node, a program that the kernel does not execute, output that cannot be written.
.TP
.B 2
Usage: the command line, a value, a script or configuration file that is missing.
.TP
.B 75
The workers were preempted: they have saved their state and stopped.
.TP
.I other
The exit code of the first worker that failed.
.SH EXAMPLES
.nf
ddprun \-\-nproc_per_node=4 train.py \-\-lr 3e\-4
ddprun \-\-nnodes=2 \-\-nproc_per_node=4 \-\-rdzv_endpoint=host0:29400 train.cfg
ddprun \-\-nnodes=2:8 \-\-max_restarts=3 \-\-rdzv_endpoint=host0:29400 ./simulate
.fi
)";

}  // namespace

std::string man_page(const std::vector<OptionHelp>& options, const std::vector<Subcommand>& subcommands,
                     std::string_view version) {
  auto text = fmt::format(".TH DDPRUN 1 \"\" \"ddprun {}\" \"User Commands\"\n", version) + head;
  text += paragraphs(options) + ".SH COMMANDS\n";
  for (const auto& subcommand : subcommands)
    text += fmt::format(".SS ddprun {}\n{}.\n", subcommand.name, literal(capitalised(subcommand.help))) +
            paragraphs(option_help(subcommand.options));
  return text + tail;
}

}  // namespace ddprun
