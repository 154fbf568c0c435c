#include <algorithm>
#include <fstream>
#include <unistd.h>

#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/support/terminal_child.h"

// The pages that ddprun prints for other programs, tested with these programs: completion in real shells, the manual
// page in groff.
using namespace ddprun::testing;

namespace {

std::string program(const std::string& name) {
  for (const std::string folder : {"/usr/bin/", "/bin/"})
    if (::access((folder + name).c_str(), X_OK) == 0) return folder + name;
  return "";
}

std::string page(const Words& options) {
  Words words{DDPRUN_PROGRAM};
  words.insert(words.end(), options.begin(), options.end());
  const auto result = run_child(words);
  REQUIRE(result.code == 0);
  REQUIRE(result.err.empty());
  return result.out;
}

// Returns the completions that bash offers at the end of a line.
Words offered(const std::string& line, const std::string& folder = ".") {
  const std::string script =
      "cd \"$3\"\n"
      "source <(\"$1\" --print-completion bash)\n"
      "COMP_LINE=$2 COMP_POINT=${#2}\n"
      "_ddprun ddprun\n"
      "printf '<%s>\\n' \"${COMPREPLY[@]}\"\n";
  const auto result =
      run_child({program("bash"), "--norc", "--noprofile", "-c", script, "bash", DDPRUN_PROGRAM, line, folder});
  CHECK(result.err.empty());
  return lines_of(result.out);
}

// Returns every option that --help lists, with two dashes.
Words options_of_help() {
  Words names;
  for (const auto& line : lines_of(page({"--help"}))) {
    const auto begin = line.find("--");
    if (!line.starts_with("  -") || begin == std::string::npos) continue;
    names.push_back(line.substr(begin, line.find(' ', begin) - begin));
  }
  REQUIRE(names.size() > 20);
  return names;
}

}  // namespace

TEST_CASE("bash completes option names with dashes or underscores, as typed") {
  if (program("bash").empty()) SKIP("there is no bash here");
  CHECK(offered("ddprun --nproc") == Words{"<--nproc_per_node=>"});
  CHECK(offered("ddprun --nproc-p") == Words{"<--nproc-per-node=>"});
  CHECK(offered("ddprun --standalone --no-py") == Words{"<--no-python >"});
  CHECK(offered("ddprun --master") == Words{"<--master_addr=>", "<--master_port=>"});
  CHECK(offered("ddprun --run_p") == Words{"<>"});  // refused, so not offered
  const auto all = offered("ddprun -");
  for (const auto& name : options_of_help()) {
    INFO(name);
    const bool there = std::find(all.begin(), all.end(), "<" + name + "=>") != all.end() ||
                       std::find(all.begin(), all.end(), "<" + name + " >") != all.end();
    CHECK(there);
  }
}

TEST_CASE("bash completes values, attached or as the next argument") {
  if (program("bash").empty()) SKIP("there is no bash here");
  CHECK(offered("ddprun --nproc_per_node=") == Words{"<cpu>", "<gpu>", "<xpu>", "<auto>"});
  CHECK(offered("ddprun --nproc_per_node c") == Words{"<cpu>"});
  CHECK(offered("ddprun --nproc a") == Words{"<auto>"});
  CHECK(offered("ddprun --rdzv-backend=st") == Words{"<static>"});
  CHECK(offered("ddprun -t ") == Words{"<0>", "<1>", "<2>", "<3>"});
  CHECK(offered("ddprun --print-completion ") == Words{"<bash>", "<zsh>", "<tcsh>"});
}

TEST_CASE("bash completes paths and the script, and leaves the script's arguments alone") {
  if (program("bash").empty()) SKIP("there is no bash here");
  const TempDir folder;
  std::ofstream(folder / "train.cfg").put('\n');
  std::filesystem::create_directory(folder / "logs");
  const auto here = folder.path().string();
  CHECK(offered("ddprun --log_dir=l", here) == Words{"<logs>"});
  CHECK(offered("ddprun --log-dir l", here) == Words{"<logs>"});
  CHECK(offered("ddprun --standalone ./tr", here) == Words{"<./train.cfg>"});
  const auto scripts = offered("ddprun --nnodes 2 tr", here);  // programs too
  CHECK(std::find(scripts.begin(), scripts.end(), "<train.cfg>") != scripts.end());
  CHECK(offered("ddprun train.cfg --nnod", here) == Words{"<>"});
}

TEST_CASE("bash completes subcommands, only as the first argument") {
  if (program("bash").empty()) SKIP("there is no bash here");
  const TempDir folder;
  const auto offers = [&](const std::string& line, const std::string& word) {
    const auto words = offered(line, folder.path().string());
    return std::find(words.begin(), words.end(), "<" + word + ">") != words.end();
  };
  CHECK(offers("ddprun ", "status"));
  CHECK(offers("ddprun ", "stop"));
  CHECK(offers("ddprun ", "attach"));
  CHECK(offers("ddprun statu", "status"));
  CHECK_FALSE(offers("ddprun --standalone statu", "status"));
}

TEST_CASE("bash completes the options of each subcommand") {
  if (program("bash").empty()) SKIP("there is no bash here");
  const TempDir folder;  // empty, because files are always offered
  const auto here = folder.path().string();
  CHECK(offered("ddprun status --j", here) == Words{"<--json >"});
  CHECK(offered("ddprun stop --j", here) == Words{"<>"});
  CHECK(offered("ddprun attach 1 --s", here) == Words{"<--signal=>"});
  CHECK(offered("ddprun status --nproc", here) == Words{"<>"});
  CHECK(offered("ddprun stop --rdzv-", here) == Words{"<--rdzv-endpoint=>", "<--rdzv-id=>"});
  CHECK(offered("ddprun stop ", here) == Words{"<--rdzv_endpoint=>", "<--rdzv_id=>", "<--help >"});
  CHECK(offered("ddprun status --rdzv_id shop --coll", here) == Words{"<--collectives >"});
  CHECK(offered("ddprun --standalone status --j", here) == Words{"<>"});  // there is a script of that name
}

TEST_CASE("an interactive bash completes a whole line") {
  if (program("bash").empty()) SKIP("there is no bash here");
  TerminalChild shell({program("bash"), "--norc", "--noprofile", "-i"}, {{"PS1", "$ "}, {"INPUTRC", "/dev/null"}});
  shell.type("source <(" DDPRUN_PROGRAM " --print-completion bash); echo read''y\n");
  shell.wait_for("ready");
  shell.type("ddprun --nproc-per-n\t");
  shell.wait_for("ddprun --nproc-per-node=");
  shell.type("c\t");
  shell.wait_for("--nproc-per-node=cpu ");
  shell.type("--stand\t");
  shell.wait_for("--nproc-per-node=cpu --standalone ");
}

TEST_CASE("an interactive zsh completes a whole line") {
  if (program("zsh").empty()) SKIP("there is no zsh here");
  const TempDir folder;
  std::ofstream(folder / "_ddprun") << page({"--print-completion=zsh"});
  TerminalChild shell({program("zsh"), "-f", "-i"}, {{"PS1", "$ "}});
  shell.type("fpath=(" + folder.path().string() + " $fpath); autoload -U compinit; compinit -u -D; echo read''y\n");
  shell.wait_for("ready\r\n");
  shell.type("ddprun() { echo args:$* }; echo set''up\n");
  shell.wait_for("setup\r\n");
  shell.type("ddprun --nproc-per-n\t");
  shell.wait_for("_node");  // zsh redraws the dashes piece by piece
  shell.type("c\t--stand\t\n");
  shell.wait_for("args:--nproc_per_node=cpu --standalone\r\n");
  shell.type("ddprun statu\t\n");
  shell.wait_for("args:status\r\n");
  shell.type("ddprun status --coll\t--rdzv-i\tshop\n");
  shell.wait_for("args:status --collectives --rdzv_id=shop\r\n");
  shell.type("ddprun stop --js\t\n");
  shell.wait_for("args:stop --js\r\n");
}

TEST_CASE("an interactive tcsh completes names in both spellings, values, paths and the first argument") {
  if (program("tcsh").empty()) SKIP("there is no tcsh here");
  const TempDir folder;
  std::ofstream(folder / "train.cfg").put('\n');
  std::ofstream(folder / "rules") << page({"--print-completion=tcsh"});
  TerminalChild shell({program("tcsh"), "-f"}, {{"TERM", "xterm"}});
  shell.type("set prompt=''; set edit; cd " + folder.path().string() + "; source rules; alias ddprun 'echo args:'\n");
  shell.type("echo read''y\n");
  shell.wait_for("ready\r\n");
  shell.type("ddprun --nproc_per_n\tc\t--rdzv-b\tst\t--log-dir=./tr\t--stand\ttr\t\n");
  shell.wait_for("args: --nproc_per_node cpu --rdzv-backend static --log-dir=./train.cfg --standalone train.cfg\r\n");
  shell.type("ddprun statu\t");
  shell.wait_for("status");  // tcsh starts a process for these words, and then reads what was typed before it ended
  shell.type("\n");
  shell.wait_for("args: status\r\n");
}

TEST_CASE("groff accepts the manual page without warnings, and the page has every option") {
  if (program("groff").empty()) SKIP("there is no groff here");
  const TempDir folder;
  const auto source = (folder / "ddprun.1").string();
  std::ofstream(source) << page({"--man"});
  const auto shown = run_child({program("groff"), "-man", "-Tascii", "-ww", "-P-cbou", source});
  CHECK(shown.code == 0);
  CHECK(shown.err.empty());
  for (const auto& name : options_of_help()) {
    INFO(name);
    CHECK(shown.out.find(" " + name) != std::string::npos);
  }
  for (const char* command : {"ddprun status", "ddprun stop", "ddprun attach", "--signal", "--collectives"})
    CHECK_THAT(shown.out, Catch::Contains(command));
  for (const char* heading : {"NAME", "SYNOPSIS", "OPTIONS", "COMMANDS", "ENVIRONMENT", "EXIT STATUS", "EXAMPLES"})
    CHECK_THAT(shown.out, Catch::Contains("\n" + std::string(heading) + "\n"));
}

TEST_CASE("man shows the manual page") {
  if (program("man").empty()) SKIP("there is no man here");
  const TempDir folder;
  const auto source = (folder / "ddprun.1").string();
  std::ofstream(source) << page({"--man"});
  const auto shown = run_child({program("man"), "-l", source}, {{"MANPAGER", "cat"}, {"MANWIDTH", "100"}});
  CHECK(shown.code == 0);
  CHECK_THAT(shown.out, Catch::Contains("DDPRUN(1)"));
  CHECK_THAT(shown.out, Catch::Contains("nproc_per_node"));
}
