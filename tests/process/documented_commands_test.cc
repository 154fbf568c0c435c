// The commands and the train.cfg files that the README and docs/ show: the programs accept them.
#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/code_blocks.h"
#include "tests/support/script_file.h"
#include "tests/support/temp_dir.h"

using namespace ddprun::testing;
namespace fs = std::filesystem;

namespace {

const fs::path tree = SOURCE_FOLDER;

// A folder in which a page's commands run, with programs that only check their arguments.
class Workplace {
 public:
  Workplace() {
    const std::string shell = "#!/bin/bash\nset -e\n";
    // Options of these subcommands are looked up in their help: the job that they would ask does not run. The launcher
    // leaves the keys of a train.cfg to the worker, except those of [launch].
    const auto launcher = shell + "program=" + DDPRUN_PROGRAM + "\nworker=" + DDPRUN_WORKER + R"(
case $1 in
  attach | dashboard | doctor | status | stop | top)
    known=$("$program" "$1" --help)
    for option in "${@:2}"; do
      [[ $1 == attach && $option == [0-9] ]] && continue
      [[ $known == *"${option%%=*} "* ]] || { echo "unknown: $option" >&2; exit 1; }
    done
    exit ;;
  report) exit ;;  # of a job that has run
  --print-completion) exec "$program" "$@" ;;
  --hosts=* | --hostfile=*) shift ;;  # what is started on each of several hosts
esac
"$program" --dry_run "$@"
while [ $# -gt 0 ] && [[ $1 != *.cfg ]]; do shift; done
for word; do
  shift
  [[ $word == --launch.* ]] || set -- "$@" "$word"
done
[ $# = 0 ] || "$worker" "$@" --print-config
)";
    const auto worker = shell + "exec " + DDPRUN_WORKER + " \"$@\" --print-config\n";
    const auto starter = shell + "while [[ $1 == -* ]]; do shift; done\nexec \"$@\"\n";
    for (const auto* folder : {"commands", "build/bin"}) {
      write_script(folder_ / folder / "ddprun", launcher);
      write_script(folder_ / folder / "ddprun-worker", worker);
    }
    write_script(folder_ / "commands" / "srun", starter);
    // Programs of others, and those that build, measure or kill: it is enough that they exist.
    for (const auto* name :
         {"apt-get", "cmake", "cpack", "ctest", "mpirun", "ninja", "pip", "pkill", "sbatch", "valgrind"})
      write_script(folder_ / "commands" / name, shell);
    for (const auto* name : {"build/bin/ddprun-bench", "build/tests/reducer_test", "mpi_program"})
      write_script(folder_ / name, shell);
    for (const auto& script : fs::directory_iterator(tree / "scripts"))
      if (script.is_regular_file()) write_script(folder_ / "scripts" / script.path().filename(), shell);
    fs::create_symlink(tree / "configs", folder_ / "configs");
    fs::copy_file(tree / "configs/linear.cfg", folder_ / "train.cfg");
    write_script(folder_ / "train.py", "");
    fs::create_symlink(fs::path(DDPRUN_PLUGINS) / "libspiral.so", folder_ / "libspiral.so");
    write_script(folder_ / "hosts", "node1 slots=4\n");
  }

  // Stops at the first command that fails.
  Child::Result run(const std::vector<std::string>& lines) const {
    const auto script = (folder_ / "block.sh").string();
    std::string text = "set -euo pipefail\ncd " + folder_.path().string() + "\n";
    for (const auto& line : lines) text += line + "\n";
    write_script(script, text);
    const Variables path{{"PATH", (folder_ / "commands").string() + ":/usr/bin:/bin"}};
    return Child({"/bin/bash", script}, path).wait(std::chrono::seconds(100));
  }

  // Returns the effective configuration of a train.cfg.
  Child::Result check_config(const std::vector<std::string>& lines) const {
    std::string text;
    for (const auto& line : lines) text += line + "\n";
    write_script(folder_ / "block.cfg", text);
    return run_child({"/bin/sh", "-c", "cd \"$0\" && exec \"$@\"", folder_.path().string(), DDPRUN_WORKER, "block.cfg",
                      "--print-config"});
  }

 private:
  TempDir folder_;
};

// Returns the lines that a user types: all lines of a block of commands, and those after a prompt if there is output.
std::vector<std::string> typed_lines(const CodeBlock& block) {
  if (block.language == "sh") return block.lines;
  std::vector<std::string> lines;
  for (const auto& line : block.lines)
    if (block.language.empty() && line.starts_with("$ ")) lines.push_back(line.substr(2));
  return lines;
}

}  // namespace

TEST_CASE("the programs accept each command that the README and docs/ show") {
  const Workplace workplace;
  int checked = 0;
  for (const auto& block : documented_code(tree)) {
    const auto lines = typed_lines(block);
    if (lines.empty()) continue;
    ++checked;
    const auto result = workplace.run(lines);
    INFO(block.where() << "\n" << result.err);
    CHECK(result.code == 0);
  }
  CHECK(checked >= 30);
}

TEST_CASE("ddprun-worker accepts each train.cfg that the README and docs/ show") {
  const Workplace workplace;
  int checked = 0;
  for (const auto& block : documented_code(tree)) {
    if (block.language != "ini") continue;
    ++checked;
    const auto result = workplace.check_config(block.lines);
    INFO(block.where() << "\n" << result.err);
    CHECK(result.code == 0);
  }
  CHECK(checked >= 5);
}
