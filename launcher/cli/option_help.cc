#include "launcher/cli/option_help.h"

#include "common/error.h"

namespace ddprun {
namespace {

std::string help_of(const Setting& setting) {
  auto text = setting.spec.help;
  if (setting.type == "flag") return text;
  if (!setting.spec.unit.empty()) text += fmt::format(" [{}]", setting.spec.unit);
  if (!setting.fallback.empty()) text += fmt::format(" (default {})", setting.fallback);
  return text;
}

OptionHelp help_entry(const OptionInfo& option, const Setting& setting) {
  return {.name = option.name,
          .short_name = option.short_name,
          .flag = option.flag,
          .added = option.added,
          .path = setting.type == "path",
          .help = help_of(setting),
          .values = setting.spec.choices.empty() ? setting.spec.suggested : setting.spec.choices};
}

}  // namespace

std::vector<OptionHelp> option_help(const std::vector<OptionInfo>& options) {
  std::vector<OptionHelp> entries;
  for (const auto& option : options)
    entries.push_back({.name = option.name,
                       .short_name = option.short_name,
                       .flag = option.flag,
                       .added = option.added,
                       .help = option.help,
                       .values = option.values});
  return entries;
}

std::vector<OptionHelp> option_help(const LaunchSettings& settings) {
  std::vector<OptionHelp> entries;
  for (const auto& option : settings.table())
    if (option.refusal.empty())
      entries.push_back(help_entry(option, *settings.settings().find("launch." + option.name)));
  for (auto& entry : option_help(page_options())) entries.push_back(std::move(entry));
  return entries;
}

}  // namespace ddprun
