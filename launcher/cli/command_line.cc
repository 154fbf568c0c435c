#include "launcher/cli/command_line.h"

#include <algorithm>
#include <cctype>

#include <fmt/ranges.h>

#include "common/error.h"

namespace ddprun {
namespace {

bool is_option(const std::string& argument) {
  return argument.size() > 1 && argument.front() == '-';
}

// "-1" and "-0.5" are values, as in Python's argparse.
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
  std::vector<const OptionInfo*> from_torchrun;
  std::vector<const OptionInfo*> added;
  for (const auto& option : table) {
    if (option.name == name) return &option;
    if (!name.empty() && option.name.starts_with(name)) (option.added ? added : from_torchrun).push_back(&option);
  }
  const auto& matches = from_torchrun.empty() ? added : from_torchrun;
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

// Reads one option and its value, which may be attached or the next argument, and advances next beyond both.
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
    if (!attached) attached = option.bare.empty() ? next_value(option) : option.bare;
    return "--" + option.name + "=" + *attached;
  }

 private:
  std::string next_value(const OptionInfo& option) {
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
  if (option.name != "print_completion") return Page::none;
  if (option.value == "bash") return Page::bash_completion;
  if (option.value == "zsh") return Page::zsh_completion;
  if (option.value == "tcsh") return Page::tcsh_completion;
  throw make_error(Errc::usage, "--print_completion = {}: expected bash, zsh or tcsh", *option.value);
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
  if (arguments == std::vector<std::string>{"help"}) return {.page = CommandLine::Page::help};
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

}  // namespace ddprun
