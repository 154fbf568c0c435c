#include "rendezvous/membership/node_commands.h"

#include "tests/support/catch.h"

using namespace ddprun;

namespace {

using Command = std::vector<std::string>;

Round round_of(const std::vector<Command>& commands) {
  Round round{.commands = find_command_difference(commands)};
  for (std::size_t i = 0; i < commands.size(); ++i)
    round.members.push_back({.host = std::string(1, static_cast<char>('a' + i)), .group_rank = static_cast<int>(i)});
  return round;
}

const Command plain{"train.py", "--lr=0.1"};
const Command other{"train.py", "--lr=0.2"};

}  // namespace

TEST_CASE("nodes that run the same command have nothing to report, nor has one that gives none") {
  CHECK_FALSE(find_command_difference({plain, plain}));
  CHECK_FALSE(find_command_difference({plain, {}}));
  CHECK_FALSE(find_command_difference({{}, plain}));
  CHECK(command_difference_text(round_of({plain, plain}), plain).empty());
}

TEST_CASE("each node names one that runs another command, and the first word in which they differ") {
  const auto two = round_of({plain, other});
  CHECK(command_difference_text(two, plain) ==
        "node 1 (host b) runs another command than this node: argument 1 is '--lr=0.2' there and '--lr=0.1' here");
  CHECK(command_difference_text(two, other) ==
        "this node runs another command than node 0 (host a): argument 1 is '--lr=0.1' there and '--lr=0.2' here");
}

TEST_CASE("several nodes with other commands get one line") {
  const auto round = round_of({plain, plain, other, {"train.py", "--lr=0.3"}});
  CHECK(command_difference_text(round, plain) ==
        "node 2 (host c) and 1 more run another command than this node: argument 1 is '--lr=0.2' there and "
        "'--lr=0.1' here");
  CHECK(command_difference_text(round, {"train.py", "--lr=0.3"}) ==
        "this node runs another command than node 0 (host a): argument 1 is '--lr=0.1' there and '--lr=0.3' here");
}

TEST_CASE("a difference names the program, and arguments that one side lacks") {
  CHECK(describe_command_difference({"a/train.py"}, {"b/train.py"}) ==
        "the program is 'b/train.py' there and 'a/train.py' here");
  CHECK(describe_command_difference({"train.py"}, {"train.py", "-x"}) == "argument 1 is '-x' there and missing here");
  CHECK(describe_command_difference({"train.py", "-x"}, {"train.py"}) == "argument 1 is '-x' here and missing there");
}

TEST_CASE("of a long command the first part is compared") {
  const auto cut = command_to_compare({std::string(10'000, 'a'), "b"});
  CHECK(cut.at(0).size() < 1024);
  CHECK(cut.at(1) == "b");
  CHECK(command_to_compare(Command(100'000, "x")).size() < 1024);
}
