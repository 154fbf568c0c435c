#include "launcher/cli/command_line.h"

#include "common/error.h"
#include "launcher/cli/pages.h"
#include "launcher/cli/subcommands.h"
#include "tests/support/catch.h"

using namespace ddprun;
using Words = std::vector<std::string>;

namespace {

NormalForm normal(const Words& arguments) {
  return normal_form(arguments, LaunchSettings().options_and_pages());
}

}  // namespace

TEST_CASE("all spellings of an option have one normal form") {
  const Words expected{"--nproc_per_node=4"};
  CHECK(normal({"--nproc_per_node=4", "x"}).options == expected);
  CHECK(normal({"--nproc-per-node=4", "x"}).options == expected);
  CHECK(normal({"--nproc-per-node", "4", "x"}).options == expected);
  CHECK(normal({"--nproc_per-node", "4", "x"}).options == expected);
  CHECK(normal({"--nproc", "4", "x"}).options == expected);
  CHECK(normal({"--nproc=4", "x"}).options == expected);
  CHECK(normal({"-r", "3", "-t0:1", "-m", "x"}).options == Words{"--redirects=3", "--tee=0:1", "--module"});
}

TEST_CASE("all arguments after the script belong to the script") {
  const auto form = normal({"--standalone", "train.py", "--nnodes=9", "-m", "--", "--weird"});
  CHECK(form.options == Words{"--standalone"});
  CHECK(form.command == Words{"train.py", "--nnodes=9", "-m", "--", "--weird"});
}

TEST_CASE("two dashes end the options") {
  CHECK(normal({"--standalone", "--", "-odd-name", "a"}).command == Words{"-odd-name", "a"});
}

TEST_CASE("values may be empty, hold '=', or be negative numbers") {
  CHECK(normal({"--rdzv_conf=a=1,b=2", "x"}).options == Words{"--rdzv_conf=a=1,b=2"});
  CHECK(normal({"--local_addr=", "x"}).options == Words{"--local_addr="});
  CHECK(normal({"--max_restarts", "-1", "x"}).options == Words{"--max_restarts=-1"});
}

TEST_CASE("usage errors name what is wrong and how to correct it") {
  CHECK_THROWS_WITH(normal({"--nprocs_per_node=2", "x"}),
                    "unknown option --nprocs_per_node; did you mean --nproc_per_node?");
  CHECK_THROWS_WITH(normal({"--zzzzzzzzzzzzzzzzzzzzz", "x"}), "unknown option --zzzzzzzzzzzzzzzzzzzzz");
  CHECK_THROWS_WITH(normal({"--master", "1", "x"}),
                    "--master is ambiguous: it could be --master_addr or --master_port");
  CHECK_THROWS_WITH(normal({"--run-path", "x"}), Catch::StartsWith("--run_path runs the script inside"));
  CHECK_THROWS_WITH(normal({"--logs-specs=p", "x"}), Catch::StartsWith("--logs_specs names a plugin"));
  CHECK_THROWS_WITH(normal({"--nnodes"}), "--nnodes expects a value");
  CHECK_THROWS_WITH(normal({"--nnodes", "--standalone", "x"}), "--nnodes expects a value");
  CHECK_THROWS_WITH(normal({"--standalone=1", "x"}), "--standalone takes no value, got '1'");
  CHECK_THROWS_WITH(normal({"-q", "x"}), "unknown option -q; ddprun --help lists them all");
  CHECK_THROWS_WITH(normal({"--train.epochs", "3", "x.cfg"}),
                    "--train.epochs is a key of a train.cfg: put it after the file's name");
}

TEST_CASE("the command line assigns options, the last of several wins") {
  LaunchSettings s;
  const auto line =
      parse_command_line({"--nnodes=2", "--nnodes=3", "--standalone", "--monitor-interval", "5", "a", "b"}, s);
  CHECK(line.command == Words{"a", "b"});
  CHECK(s.options().nnodes == "3");
  CHECK(s.options().standalone);
  CHECK(s.options().monitor_interval == 5);
  CHECK(s.origin("nnodes") == Origin::command_line);
  CHECK_FALSE(s.is_set("max_restarts"));
}

TEST_CASE("an empty value is a value, such as an unset variable in a shell script") {
  LaunchSettings s;
  parse_command_line({"--role=", "--rdzv-endpoint", "", "--local_addr=", "--rdzv_conf", "", "x"}, s);
  CHECK(s.options().role.empty());
  CHECK(s.options().rdzv_endpoint.empty());
  CHECK(s.options().rdzv_conf.empty());
  CHECK_THROWS_WITH(parse_command_line({"--nnodes", "", "--max_restarts=", "x"}, s),
                    "--max_restarts: launch.max_restarts = : expected a whole number at least 0");
}

TEST_CASE("a script is required, except for pages") {
  LaunchSettings s;
  CHECK_THROWS_WITH(parse_command_line({"--standalone"}, s),
                    "no script given\nusage: ddprun [options] train.cfg|script.py|program [arguments...]");
  using Page = CommandLine::Page;
  CHECK(parse_command_line({"--help"}, s).page == Page::help);
  CHECK(parse_command_line({"-h"}, s).page == Page::help);
  CHECK(parse_command_line({"--version"}, s).page == Page::version);
  CHECK(parse_command_line({"--man"}, s).page == Page::man);
  CHECK(parse_command_line({"--print-completion=bash"}, s).page == Page::bash_completion);
  CHECK(parse_command_line({"--print-completion", "zsh"}, s).page == Page::zsh_completion);
  CHECK(parse_command_line({"--print-completion=tcsh"}, s).page == Page::tcsh_completion);
  CHECK_THROWS_WITH(parse_command_line({"--print-completion=fish"}, s),
                    "--print_completion = fish: expected bash, zsh or tcsh");
}

TEST_CASE("an abbreviation that torchrun accepts keeps its meaning, whatever options were added") {
  auto table = page_options();
  table.push_back({.name = "virtual_local_rank", .flag = true});
  CHECK(normal_form({"--v", "x"}, table).options == Words{"--virtual_local_rank"});  // ddprun added --version
  CHECK(normal_form({"--vers", "x"}, table).options == Words{"--version"});
  CHECK(normal_form({"--h", "x"}, table).options == Words{"--help"});
  table.push_back({.name = "hosts", .added = true});
  table.push_back({.name = "hostfile", .added = true});
  CHECK(normal_form({"--h", "x"}, table).options == Words{"--help"});
  CHECK_THROWS_WITH(normal_form({"--host", "x"}, table), "--host is ambiguous: it could be --hosts or --hostfile");
}

TEST_CASE("the help page lists every supported option") {
  const LaunchSettings s;
  const auto text = help_text(s);
  for (const auto& option : s.table()) {
    INFO(option.name);
    CHECK((text.find("--" + option.name) != std::string::npos) == option.refusal.empty());
  }
  CHECK(text.find("nothing polls") != std::string::npos);
}

TEST_CASE("a subcommand's options and its operand are parsed, and a superfluous or missing word is named") {
  const auto& report = *find_subcommand("report");
  const auto line = parse_subcommand(report, {"--output", "page.html", "logs"});
  CHECK(line.operand == "logs");
  CHECK(line.value("output") == "page.html");
  CHECK_FALSE(line.has("help"));
  CHECK(line.value("help").empty());
  CHECK(parse_subcommand(report, {"logs", "--output=page.html"}).value("output") == "page.html");
  CHECK(parse_subcommand(report, {"--help"}).has("help"));
  CHECK_THROWS_WITH(parse_subcommand(report, {}), "ddprun report: expected LOGDIR; see ddprun report --help");
  CHECK_THROWS_WITH(parse_subcommand(report, {"logs", "more"}),
                    "ddprun report: superfluous argument 'more'; a program of that name is started as ./report");
  CHECK_THROWS_WITH(parse_subcommand(*find_subcommand("top"), {"logs"}),
                    "ddprun top: superfluous argument 'logs'; a program of that name is started as ./top");
}
