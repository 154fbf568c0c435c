#include "ddprun/launcher/cli/verbs.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

namespace ddprun {
namespace {

const OptionInfo endpoint{
    .name = "rdzv_endpoint",
    .describe = "the job's rendezvous, from any host; without it, the jobs of this user on this machine",
    .value = "HOST[:PORT]"};
const OptionInfo help{.name = "help", .short_name = 'h', .flag = true, .describe = "this page"};

OptionInfo run_id(std::string describe) {
  return {.name = "rdzv_id", .describe = std::move(describe), .value = "ID"};
}

Verb status() {
  return {.name = "status",
          .help = "tells who is in a running job, its generation and restarts, and each worker's process and state",
          .options = {endpoint,
                      run_id("the job's name; all jobs unless named"),
                      {.name = "collectives",
                       .flag = true,
                       .describe = "which operation of its process groups each rank is in, and which rank has not come "
                                   "to one"},
                      {.name = "json", .flag = true, .describe = "one JSON object, {\"jobs\": [...]}"},
                      help}};
}

Verb stop() {
  return {.name = "stop",
          .help = "ends a job on all its nodes, its workers first with SIGTERM and the grace that the job was given",
          .options = {endpoint, run_id("the job's name, where there are several"), help}};
}

}  // namespace

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> all{status(), stop()};
  return all;
}

const Verb* find_verb(std::string_view name) {
  const auto found = std::find_if(verbs().begin(), verbs().end(), [&](const Verb& verb) { return verb.name == name; });
  return found == verbs().end() ? nullptr : &*found;
}

std::string help_text(const Verb& verb) {
  auto usage = "usage: ddprun " + verb.name;
  std::string lines;
  for (const auto& option : verb.options) {
    usage += fmt::format(" [--{}{}]", option.name, option.flag ? "" : "=" + option.value);
    lines += fmt::format("  --{:<15} {}\n", option.name, option.describe);
  }
  return fmt::format("{}\n\n{}: {}.\n\n{}\nA program named {} is started as ./{}.\n", usage, verb.name, verb.help,
                     lines, verb.name, verb.name);
}

}  // namespace ddprun
