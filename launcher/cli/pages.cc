#include "ddprun/launcher/cli/pages.h"

#include <CLI/Version.hpp>
#include <boost/version.hpp>

#include "ddprun/common/error.h"
#include "ddprun/common/version.h"
#include "ddprun/launcher/cli/completion.h"
#include "ddprun/launcher/cli/man_page.h"
#include "ddprun/launcher/cli/option_page.h"

namespace ddprun {

std::string page_text(CommandLine::Page page, const LaunchSettings& settings) {
  using Page = CommandLine::Page;
  switch (page) {
    case Page::help:
      return help_text(settings);
    case Page::version:
      return version_text("ddprun",
                          {{"Boost", version_of_number(BOOST_VERSION, 100, 100'000)}, {"CLI11", CLI11_VERSION}});
    case Page::bash_completion:
      return bash_completion(option_pages(settings), verbs());
    case Page::zsh_completion:
      return zsh_completion(option_pages(settings), verbs());
    case Page::man:
      return man_page(option_pages(settings), verbs(), project_version());
    case Page::none:
      break;
  }
  throw make_error(Errc::internal, "there is no page to print");
}

}  // namespace ddprun
