#include "ddprun/launcher/cli/command_line.h"

#include <algorithm>
#include <cctype>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include "ddprun/common/error.h"
#include "ddprun/launcher/cli/option_page.h"

namespace ddprun {
namespace {

constexpr const char* usage_line = "usage: ddprun [options] train.cfg|script.py|program [arguments...]";

bool is_option(const std::string& argument) {
  return argument.size() > 1 && argument.front() == '-';
}

// "-1" and "-0.5" are values, as argparse has it.
bool is_negative_number(const std::string& argument) {
  return is_option(argument) &&
         std::all_of(argument.begin() + 1, argument.end(), [](unsigned char c) { return std::isdigit(c) || c == '.'; });
}

std::string long_names(const std::vector<const OptionInfo*>& options) {
  std::vector<std::string> names;
  for (const auto* option : options) names.push_back("--" + option->name);
  return fmt::format("{}", fmt::join(names, " or "));
}

// Keys of a train.cfg ("train.epochs") are given after the file.
[[noreturn]] void refuse_config_key(const std::string& name) {
  constexpr std::string_view launch = "launch.";
  if (name.starts_with(launch))
    throw make_error(Errc::usage, "--{} is a key of a train.cfg: put it after the file's name, or write --{} here",
                     name, name.substr(launch.size()));
  throw make_error(Errc::usage, "--{} is a key of a train.cfg: put it after the file's name", name);
}

// Both find functions return an element of the table, never null. A reference would make GCC 13 warn that it dangles.
const OptionInfo* find_long(std::string name, const std::vector<OptionInfo>& table) {
  const std::string typed = "--" + name;
  std::replace(name.begin(), name.end(), '-', '_');
  std::vector<const OptionInfo*> torchruns;
  std::vector<const OptionInfo*> added;
  for (const auto& option : table) {
    if (option.name == name) return &option;
    if (!name.empty() && option.name.starts_with(name)) (option.added ? added : torchruns).push_back(&option);
  }
  const auto& matches = torchruns.empty() ? added : torchruns;
  if (matches.size() == 1) return matches.front();
  if (!matches.empty()) throw make_error(Errc::usage, "{} is ambiguous: it could be {}", typed, long_names(matches));
  std::vector<std::string> names;
  for (const auto& option : table) names.push_back("--" + option.name);
  if (name.find('.') != std::string::npos) refuse_config_key(typed.substr(2));
  const auto near = nearest("--" + name, names);
  throw make_error(Errc::usage, "unknown option {}{}", typed, near ? fmt::format("; did you mean {}?", *near) : "");
}

const OptionInfo* find_short(const std::string& argument, const std::vector<OptionInfo>& table) {
  for (const auto& option : table)
    if (option.short_name != 0 && option.short_name == argument[1]) return &option;
  throw make_error(Errc::usage, "unknown option {}; ddprun --help lists them all", argument);
}

// One option with its value, wherever that stands; next is moved behind what was used.
class OptionReader {
 public:
  OptionReader(const std::vector<std::string>& arguments, std::size_t& next) : arguments_(arguments), next_(next) {}

  std::string read(const std::vector<OptionInfo>& table) {
    const std::string argument = arguments_[next_++];
    const bool is_long = argument.starts_with("--");
    const auto equals = is_long ? argument.find('=') : std::string::npos;
    const auto& option = *(is_long ? find_long(argument.substr(2, equals - 2), table) : find_short(argument, table));
    if (!option.refusal.empty()) throw make_error(Errc::usage, "--{} {}", option.name, option.refusal);
    std::optional<std::string> attached;
    if (equals != std::string::npos) attached = argument.substr(equals + 1);
    if (!is_long && argument.size() > 2) attached = argument.substr(argument[2] == '=' ? 3 : 2);
    if (option.flag) {
      if (attached) throw make_error(Errc::usage, "--{} takes no value, got '{}'", option.name, *attached);
      return "--" + option.name;
    }
    return "--" + option.name + "=" + (attached ? *attached : value_behind(option));
  }

 private:
  std::string value_behind(const OptionInfo& option) {
    if (next_ == arguments_.size() || (is_option(arguments_[next_]) && !is_negative_number(arguments_[next_])))
      throw make_error(Errc::usage, "--{} expects a value", option.name);
    return arguments_[next_++];
  }

  const std::vector<std::string>& arguments_;
  std::size_t& next_;
};

CommandLine::Page page_of(const GivenOption& option) {
  using Page = CommandLine::Page;
  if (option.name == "help") return Page::help;
  if (option.name == "version") return Page::version;
  if (option.name == "man") return Page::man;
  if (option.name != "completion") return Page::none;
  if (option.value == "bash") return Page::bash_completion;
  if (option.value == "zsh") return Page::zsh_completion;
  throw make_error(Errc::usage, "--completion = {}: expected bash or zsh", *option.value);
}

void add_to_help(CLI::App& app, const OptionPage& option) {
  const auto spelling = (option.short_name ? fmt::format("-{},", option.short_name) : "") + "--" + option.name;
  if (option.flag)
    app.add_flag(spelling, option.help);
  else
    app.add_option(spelling, option.help)->type_name("");
}

}  // namespace

NormalForm normal_form(const std::vector<std::string>& arguments, const std::vector<OptionInfo>& table) {
  NormalForm result;
  std::size_t next = 0;
  OptionReader reader(arguments, next);
  while (next < arguments.size() && is_option(arguments[next])) {
    if (arguments[next] == "--") {
      ++next;
      break;
    }
    result.options.push_back(reader.read(table));
  }
  result.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(next), arguments.end());
  return result;
}

GivenOption given_option(const std::string& normal) {
  const auto equals = normal.find('=');
  if (equals == std::string::npos) return {.name = normal.substr(2)};
  return {.name = normal.substr(2, equals - 2), .value = normal.substr(equals + 1)};
}

CommandLine parse_command_line(const std::vector<std::string>& arguments, LaunchSettings& settings) {
  auto form = normal_form(arguments, settings.options_and_pages());
  CommandLine result{.command = std::move(form.command)};
  std::vector<GivenOption> given;
  for (const auto& option : form.options) given.push_back(given_option(option));
  for (const auto& option : given)
    if (result.page = page_of(option); result.page != CommandLine::Page::none) return result;
  for (const auto& option : given) settings.assign_from_command_line(option.name, option.value.value_or("true"));
  if (result.command.empty()) throw make_error(Errc::usage, "no script given\n{}", usage_line);
  return result;
}

std::string help_text(const LaunchSettings& settings) {
  CLI::App app{"Starts, places, watches and restarts the processes of a distributed training job.", "ddprun"};
  app.set_help_flag();
  for (const auto& option : option_pages(settings)) add_to_help(app, option);
  auto formatter = std::make_shared<CLI::Formatter>();
  formatter->column_width(28);
  app.formatter(formatter);
  auto text = app.help();
  const auto usage = text.find("Usage:");
  const auto options = text.find("Options:");
  if (usage != std::string::npos && options != std::string::npos)
    text.replace(usage, options - usage, std::string(usage_line) + "\n\n");
  text.erase(text.find_last_not_of('\n') + 1);  // versions of CLI11 differ in how many there are
  return text +
         "\n\nAn argument that ends in .cfg runs the built-in worker on it, one that ends in .py runs under Python, "
         "anything\n"
         "else is a program to execute. Every option can also be set as PET_<NAME> in the environment and, without "
         "the\n"
         "dashes, in the [launch] section of a train.cfg; the command line beats the environment beats the file.\n\n"
         "ddprun status and ddprun stop ask a running job; each has a --help of its own.\n";
}

}  // namespace ddprun
