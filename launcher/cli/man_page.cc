#include "ddprun/launcher/cli/man_page.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

namespace ddprun {
namespace {

// Text of ours as groff shows it literally; its lines begin with neither '.' nor an apostrophe.
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

std::string spelling(const OptionPage& option) {
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

std::string paragraphs(const std::vector<OptionPage>& options) {
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
Starts workers on this node, tells them their ranks and where to meet, joins their output, and ends or restarts the job
as a whole when one of them fails. On several nodes the same command is given on each.
.PP
The first argument that is no option decides what runs: one that ends in
.I .cfg
is trained on by the built\-in worker
.BR ddprun\-worker ,
one that ends in
.I .py
runs under the Python interpreter, anything else is a program to execute. Options and environment are torchrun's. In
an argument the text ${local_rank} becomes the worker's local rank.
.SH OPTIONS
A name may be written with dashes or underscores and cut short while it stays unique. Each option can also be set by
the environment variable
.BI PET_ NAME
in capitals (a flag: 0 is off, another integer on) and, without the dashes, in the
.B [launch]
section of a train.cfg. The command line beats the environment, which beats the file.
)";

constexpr const char* tail = R"(.SH ENVIRONMENT
.TP
.B PYTHON_EXEC
The Python interpreter; default python3.
.TP
.B LOGLEVEL
How much ddprun says: DEBUG, INFO (default), WARNING, ERROR.
.TP
.B TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE
As PET_LOG_LINE_PREFIX_TEMPLATE, which beats it.
.TP
.B TORCH_ELASTIC_SHUTDOWN_TIMEOUT
As PET_SHUTDOWN_TIMEOUT, which beats it.
.TP
.B TORCHELASTIC_ERROR_FILE
A file in which a scheduler finds the root cause of a failure.
.TP
.B TORCHELASTIC_ENABLE_FILE_TIMER
1: workers may set timers over the named pipe that TORCHELASTIC_TIMER_FILE names to them.
.SH EXIT STATUS
.TP
.B 0
All workers of all nodes ended with 0.
.TP
.BI 128+ n
The first worker to fail was ended by signal
.IR n ,
or ddprun itself was stopped by it.
.TP
.B 1
Rendezvous, store, a timeout, a lost node, a program that cannot be executed.
.TP
.B 2
The command line, a configuration file, a value.
.TP
.I other
That of the first worker to fail.
.SH EXAMPLES
.nf
ddprun \-\-nproc_per_node=4 train.py \-\-lr 3e\-4
ddprun \-\-nnodes=2 \-\-nproc_per_node=4 \-\-rdzv_endpoint=host0:29400 train.cfg
ddprun \-\-nnodes=2:8 \-\-max_restarts=3 \-\-rdzv_endpoint=host0:29400 ./simulate
.fi
)";

}  // namespace

std::string man_page(const std::vector<OptionPage>& options, const std::vector<Verb>& verbs, std::string_view version) {
  auto text = fmt::format(".TH DDPRUN 1 \"\" \"ddprun {}\" \"User Commands\"\n", version) + head;
  text += paragraphs(options) + ".SH COMMANDS\n";
  for (const auto& verb : verbs)
    text += fmt::format(".SS ddprun {}\n{}.\n", verb.name, literal(capitalised(verb.help))) +
            paragraphs(option_pages(verb.options));
  return text + tail;
}

}  // namespace ddprun
