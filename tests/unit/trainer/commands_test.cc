#include <set>
#include <string>

#include "worker/trainer/commands/command.h"
#include "tests/support/catch.h"

using namespace ddprun::trainer;

TEST_CASE("a command has a name of its own, with which its usage and its help begin") {
  const auto commands = all_commands();
  REQUIRE(commands.size() > 1);
  CHECK(commands.front().name == "train");
  std::set<std::string_view> names;
  for (const auto& command : commands) {
    INFO(command.name);
    CHECK(names.insert(command.name).second);
    CHECK((command.run != nullptr) != (command.run_words != nullptr));
    if (command.name == "train") continue;  // it is written without its name
    const std::string name(command.name);
    CHECK(command.usage.starts_with(name + (command.run ? " train.cfg" : " ")));
    CHECK(command.help.starts_with(name + " "));
    CHECK(command.help.ends_with("\n"));
  }
}

TEST_CASE("the options of a command that take a number are in its usage") {
  for (const auto& command : all_commands())
    for (const auto option : command.counts) CHECK(command.usage.find(option) != std::string_view::npos);
}

TEST_CASE("the usage has a line for each command, in the order of their help") {
  const auto usage = usage_lines(), help = help_lines();
  CHECK(usage.starts_with("usage: ddprun-worker train.cfg "));
  std::size_t usage_at = 0, help_at = 0;
  for (const auto& command : all_commands()) {
    usage_at = usage.find("ddprun-worker " + std::string(command.usage) + "\n", usage_at);
    help_at = help.find(command.help, help_at);
    INFO(command.name);
    REQUIRE(usage_at != std::string::npos);
    REQUIRE(help_at != std::string::npos);
  }
}
