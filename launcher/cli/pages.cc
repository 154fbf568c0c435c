#include "launcher/cli/pages.h"

#include <memory>

#include <CLI/CLI.hpp>
#include <CLI/Version.hpp>
#include <boost/version.hpp>

#include "common/error.h"
#include "common/version.h"
#include "launcher/cli/completion.h"
#include "launcher/cli/man_page.h"
#include "launcher/cli/option_help.h"

namespace ddprun {
namespace {

void add_to_help(CLI::App& app, const OptionHelp& option) {
  const auto spelling = (option.short_name ? fmt::format("-{},", option.short_name) : "") + "--" + option.name;
  if (option.flag)
    app.add_flag(spelling, option.help);
  else
    app.add_option(spelling, option.help)->type_name("");
}

}  // namespace

// CLI11 lays the page out; it does not parse ddprun's command line.
std::string help_text(const LaunchSettings& settings) {
  CLI::App app{"Starts, places, watches and restarts the processes of a distributed training job.", "ddprun"};
  app.set_help_flag();
  for (const auto& option : option_help(settings)) add_to_help(app, option);
  auto formatter = std::make_shared<CLI::Formatter>();
  formatter->column_width(28);
  app.formatter(formatter);
  auto text = app.help();
  const auto usage = text.find("Usage:");
  const auto options = text.find("Options:");
  if (usage != std::string::npos && options != std::string::npos)
    text.replace(usage, options - usage, std::string(usage_line) + "\n\n");
  text.erase(text.find_last_not_of('\n') + 1);  // their number depends on the version of CLI11
  return text + R"(

An argument that ends in .cfg is run by the built-in worker, one that ends in .py by Python; anything else is a
program. Every option can also be set as PET_<NAME> in the environment and, without the dashes, in the [launch]
section of a train.cfg; the command line overrides the environment, which overrides the file.

ddprun status, stop, attach and top are commands about a running job, report about one that has ended, and doctor
about hosts; each has its own --help.
)";
}

std::string page_text(CommandLine::Page page, const LaunchSettings& settings) {
  using Page = CommandLine::Page;
  switch (page) {
    case Page::help:
      return help_text(settings);
    case Page::version:
      return version_text("ddprun",
                          {{"Boost", version_of_number(BOOST_VERSION, 100, 100'000)}, {"CLI11", CLI11_VERSION}});
    case Page::bash_completion:
      return bash_completion(option_help(settings), subcommands());
    case Page::zsh_completion:
      return zsh_completion(option_help(settings), subcommands());
    case Page::tcsh_completion:
      return tcsh_completion(option_help(settings), subcommands());
    case Page::man:
      return man_page(option_help(settings), subcommands(), project_version());
    case Page::none:
      break;
  }
  throw make_error(Errc::internal, "there is no page to print");
}

}  // namespace ddprun
