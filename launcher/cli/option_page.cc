#include "ddprun/launcher/cli/option_page.h"

#include "ddprun/common/error.h"

namespace ddprun {
namespace {

std::string help_of(const Setting& setting) {
  auto text = setting.spec.help;
  if (setting.type == "flag") return text;
  if (!setting.spec.unit.empty()) text += fmt::format(" [{}]", setting.spec.unit);
  if (!setting.fallback.empty()) text += fmt::format(" (default {})", setting.fallback);
  return text;
}

OptionPage page_of(const OptionInfo& option, const Setting& setting) {
  return {.name = option.name,
          .short_name = option.short_name,
          .flag = option.flag,
          .added = option.added,
          .path = setting.type == "path",
          .help = help_of(setting),
          .values = setting.spec.choices.empty() ? setting.spec.suggested : setting.spec.choices,
          .variable = pet_variable(option.name)};
}

}  // namespace

std::vector<OptionPage> option_pages(const std::vector<OptionInfo>& options) {
  std::vector<OptionPage> pages;
  for (const auto& option : options)
    pages.push_back({.name = option.name,
                     .short_name = option.short_name,
                     .flag = option.flag,
                     .added = option.added,
                     .help = option.describe,
                     .values = option.values});
  return pages;
}

std::vector<OptionPage> option_pages(const LaunchSettings& settings) {
  std::vector<OptionPage> pages;
  for (const auto& option : settings.table())
    if (option.refusal.empty()) pages.push_back(page_of(option, *settings.settings().find("launch." + option.name)));
  for (auto& page : option_pages(page_options())) pages.push_back(std::move(page));
  return pages;
}

}  // namespace ddprun
