#include "launcher/cli/completion.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "common/shell_quoted.h"

namespace ddprun {
namespace {

// The script splits the line at blanks itself, because readline's list of words is also split at '=' and ':'. In a
// value, readline replaces only the text after the last of these characters.
constexpr const char* bash_functions = R"bash(
# The option that a typed name means: that option itself, or the one of which it is a unique prefix.
_ddprun_option() {
  local typed=${1//-/_} name list matches
  for list in "$torchrun" "$added"; do
    matches=()
    for name in $list; do
      if [[ $name == "$typed" ]]; then echo "$name"; return; fi
      if [[ $name == "$typed"* ]]; then matches+=("$name"); fi
    done
    if [[ ${#matches[@]} == 1 ]]; then echo "${matches[0]}"; fi
    if [[ ${#matches[@]} -gt 0 ]]; then return; fi
  done
}

_ddprun_names() {
  local name typed=${1#--} dashes=
  if [[ $1 == -- || $1 == - ]]; then typed=; fi
  if [[ $typed == *-* ]]; then dashes=1; fi
  for name in $torchrun $added; do
    if [[ $name != "${typed//-/_}"* ]]; then continue; fi
    local suffix='='
    if [[ " $flags " == *" $name "* ]]; then suffix=' '; fi
    if [[ -n $dashes ]]; then name=${name//_/-}; fi
    COMPREPLY+=("--$name$suffix")
  done
  compopt -o nospace 2>/dev/null
}

_ddprun_values() {
  local option=$1 typed=$2 kept=
  if [[ " $paths " == *" $option "* ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$typed")
    return
  fi
  if [[ $typed == *:* && $COMP_WORDBREAKS == *:* ]]; then kept=${typed%:*}:; fi
  mapfile -t COMPREPLY < <(compgen -W "$(_ddprun_words "$option")" -- "$typed")
  COMPREPLY=("${COMPREPLY[@]#"$kept"}")
}

# The first argument may also be a subcommand.
_ddprun_script() {
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(if [[ -n $2 ]]; then compgen -W "$_ddprun_subcommands" -- "$1"; fi
    compgen -f -- "$1"; if [[ -n $1 && $1 != */* ]]; then compgen -c -- "$1"; fi)
}

_ddprun() {
  local line=${COMP_LINE:0:COMP_POINT} words current= word awaited= subcommand=
  local torchrun added flags paths  # the options allowed here, used by all functions above
  COMPREPLY=()
  read -ra words <<<"$line"
  if [[ $line != *[[:space:]] ]]; then
    current=${words[-1]}
    unset 'words[-1]'
  fi
  if [[ " $_ddprun_subcommands " == *" ${words[1]-} "* ]]; then
    subcommand=${words[1]}
    words=("${words[@]:1}")
  fi
  _ddprun_options "$subcommand"
  for word in "${words[@]:1}"; do
    if [[ -n $awaited ]]; then awaited=; continue; fi
    case $word in
      --*=*) ;;
      --?*) awaited=$(_ddprun_option "${word#--}") ;;
      -[!-]) awaited=$(_ddprun_short "${word#-}") ;;
      -*) ;;
      *) if [[ -z $subcommand ]]; then return; fi ;;  # the script: its own arguments follow, files by default
    esac
    if [[ " $flags " == *" $awaited "* ]]; then awaited=; fi
  done
  if [[ -n $awaited ]]; then _ddprun_values "$awaited" "$current"; return; fi
  case $current in
    --*=*)
      word=${current%%=*}
      _ddprun_values "$(_ddprun_option "${word#--}")" "${current#*=}"
      if [[ $COMP_WORDBREAKS != *=* ]]; then COMPREPLY=("${COMPREPLY[@]/#/${current%%=*}=}"); fi
      ;;
    -*) _ddprun_names "$current" ;;
    *)
      if [[ -n $subcommand ]]; then
        if [[ -z $current ]]; then _ddprun_names --; fi
      elif [[ ${#words[@]} -gt 1 ]]; then
        _ddprun_script "$current"
      else
        _ddprun_script "$current" first
      fi
      ;;
  esac
}

complete -o default -F _ddprun ddprun
)bash";

std::string names(const std::vector<Subcommand>& subcommands) {
  std::string list;
  for (const auto& subcommand : subcommands) list += (list.empty() ? "" : " ") + subcommand.name;
  return list;
}

template <class Wanted>
std::string names(const std::vector<OptionHelp>& options, Wanted wanted) {
  std::string list;
  for (const auto& option : options)
    if (wanted(option)) list += (list.empty() ? "" : " ") + option.name;
  return list;
}

std::string with_replaced_underscores(const std::string& text, const char* replacement) {
  std::string result;
  for (const char c : text) {
    if (c == '_')
      result += replacement;
    else
      result += c;
  }
  return result;
}

// Escapes text for the brackets of zsh's _arguments.
std::string in_brackets(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

// Sets the variables that the functions read.
std::string bash_options(const std::string& pattern, const std::vector<OptionHelp>& options) {
  return fmt::format(
      "    {})\n      torchrun='{}'\n      added='{}'\n      flags='{}'\n      paths='{}'\n      ;;\n", pattern,
      names(options, [](const auto& o) { return !o.added; }), names(options, [](const auto& o) { return o.added; }),
      names(options, [](const auto& o) { return o.flag; }), names(options, [](const auto& o) { return o.path; }));
}

std::string zsh_action(const OptionHelp& option) {
  if (option.path) return ":path:_files";
  if (!option.values.empty()) return fmt::format(":value:({})", fmt::join(option.values, " "));
  return ":value: ";
}

std::string zsh_argument(const std::string& spelling, const char* equals, const OptionHelp& option) {
  const auto help = "[" + in_brackets(option.help) + "]";
  return "  " + shell_quoted(option.flag ? spelling + help : spelling + equals + help + zsh_action(option)) + " \\\n";
}

// Calls zsh's _arguments with the options.
std::string zsh_arguments(const std::vector<OptionHelp>& options) {
  // Dashes and underscores are equal in a name.
  std::string text = "_arguments -M 'm:{-_}={_-}' \\\n";
  for (const auto& option : options) {
    text += zsh_argument("--" + option.name, "=", option);
    if (option.short_name != 0) text += zsh_argument(std::string("-") + option.short_name, "+", option);
  }
  return text;
}

// The rules for an option's value, attached or as the next word; none where any text may follow.
std::string tcsh_values(const OptionHelp& option) {
  if (!option.path && option.values.empty()) return "";
  const auto list = option.path ? "f" : fmt::format("({})", fmt::join(option.values, " "));
  const auto spellings = with_replaced_underscores(option.name, "[-_]");
  auto rules = fmt::format("  'n@--{0}@{1}@' 'c@--{0}=@{1}@' \\\n", spellings, list);
  if (option.short_name != 0) rules += fmt::format("  'n@-{}@{}@' \\\n", option.short_name, list);
  return rules;
}

// The rules for names. A dash in the typed part of a name chooses the spelling with dashes.
std::string tcsh_names(const std::vector<OptionHelp>& options) {
  std::string with_dashes;
  for (const auto& option : options)
    if (option.name.find('_') != std::string::npos)
      with_dashes += (with_dashes.empty() ? "--" : " --") + with_replaced_underscores(option.name, "-");
  return fmt::format("  'C@--*-*@({})@' \\\n  'c@--@({})@' \\\n", with_dashes,
                     names(options, [](const auto&) { return true; }));
}

}  // namespace

std::string bash_completion(const std::vector<OptionHelp>& options, const std::vector<Subcommand>& subcommands) {
  auto text = std::string("# bash completion for ddprun, printed by \"ddprun --print-completion bash\"\n");
  text += fmt::format("_ddprun_subcommands='{}'\n", names(subcommands));
  text += "\n_ddprun_options() {\n  case $1 in\n";
  for (const auto& subcommand : subcommands) text += bash_options(subcommand.name, option_help(subcommand.options));
  text += bash_options("*", options);
  text += "  esac\n}\n\n_ddprun_words() {\n  case $1 in\n";
  for (const auto& option : options)
    if (!option.values.empty())
      text += fmt::format("    {}) echo {} ;;\n", option.name,
                          shell_quoted(fmt::format("{}", fmt::join(option.values, " "))));
  text += "  esac\n}\n\n_ddprun_short() {\n  case $1 in\n";
  for (const auto& option : options)
    if (option.short_name != 0) text += fmt::format("    {}) echo {} ;;\n", option.short_name, option.name);
  return text + "  esac\n}\n" + bash_functions;
}

std::string zsh_completion(const std::vector<OptionHelp>& options, const std::vector<Subcommand>& subcommands) {
  std::string text =
      "#compdef ddprun\n"
      "# zsh completion for ddprun, printed by \"ddprun --print-completion zsh\"\n"
      "if (( CURRENT > 2 )); then\n"
      "case $words[2] in\n";
  for (const auto& subcommand : subcommands)
    text += fmt::format("({})\nshift words; (( CURRENT-- ))\n{}\nreturn ;;\n", subcommand.name,
                        zsh_arguments(option_help(subcommand.options)));
  text += "esac\nfi\n" + zsh_arguments(options);
  return text +
         fmt::format("  '(-)1: :_alternative \"commands:command:({})\" \"scripts:script:_files\"' \\\n",
                     names(subcommands)) +
         "  '*::arguments:_files'\n";
}

// tcsh takes the first rule that fits: values, names, paths, then the first argument, which may be a subcommand.
std::string tcsh_completion(const std::vector<OptionHelp>& options, const std::vector<Subcommand>& subcommands) {
  std::string text =
      "# tcsh completion for ddprun, printed by \"ddprun --print-completion tcsh\"\n"
      "complete ddprun \\\n";
  for (const auto& option : options) text += tcsh_values(option);
  return text + tcsh_names(options) + fmt::format("  'C@*/@f@' 'p@1@`echo {}; ls -p`@'\n", names(subcommands));
}

}  // namespace ddprun
