#include "launcher/cli/worker_command.h"

#include <fstream>
#include <sys/stat.h>

#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using Words = std::vector<std::string>;

namespace {

struct Folder : testing::TempDir {
  std::string file(const std::string& name, bool executable = true) const {
    const auto path = (*this / name).string();
    std::ofstream(path) << "x";
    ::chmod(path.c_str(), executable ? 0755 : 0644);
    return path;
  }
  Environment environment() const { return Environment({{"PATH", "/nowhere:" + path().string()}}); }
  WorkerCommand resolve(const Words& command, CommandChoice choice = {}) const {
    return resolve_command(command, choice, *this / "own", environment());
  }
};

}  // namespace

TEST_CASE("a train.cfg runs the built-in worker, from ddprun's folder or from PATH") {
  const Folder folder;
  CHECK_THROWS_WITH(folder.resolve({"a.cfg"}),
                    "the built-in worker ddprun-worker is neither in " + (folder / "own").string() + " nor on PATH");
  const auto on_path = folder.file("ddprun-worker");
  CHECK(folder.resolve({"a.cfg", "--train.epochs=1"}).arguments == Words{on_path, "a.cfg", "--train.epochs=1"});
  std::filesystem::create_directory(folder / "own");
  const auto beside = folder.file("own/ddprun-worker");
  const auto command = folder.resolve({"a.cfg"});
  CHECK(command.executable == beside);
  CHECK(command.title == "a.cfg");
}

TEST_CASE("a .py runs under Python, unbuffered, and -m runs a module") {
  const Folder folder;
  const auto script = folder.file("train.py", false);
  CHECK_THROWS_WITH(folder.resolve({script}),
                    script +
                        " needs a Python interpreter, and there is none: cannot execute python3: No such file or "
                        "directory (not on PATH either); name one in PYTHON_EXEC");
  const auto python = folder.file("python3");
  CHECK(folder.resolve({script, "--lr", "1"}).arguments == Words{python, "-u", script, "--lr", "1"});
  CHECK(folder.resolve({"pkg.train", "x"}, {.module = true}).arguments == Words{python, "-u", "-m", "pkg.train", "x"});
  CHECK_THROWS_WITH(folder.resolve({"missing.py"}), "cannot read missing.py: No such file or directory");
}

TEST_CASE("a launcher in a virtual environment runs scripts under that environment's Python") {
  const Folder folder;
  const auto script = folder.file("train.py", false);
  const auto on_path = folder.file("python3");
  std::filesystem::create_directories(folder / "venv/bin");
  const auto beside = folder.file("venv/bin/python3");
  const auto own_folder = folder / "venv/bin";
  CHECK(resolve_command({script}, {}, own_folder, folder.environment()).executable == on_path);
  folder.file("venv/pyvenv.cfg", false);
  CHECK(resolve_command({script}, {}, own_folder, folder.environment()).executable == beside);
  const auto own = folder.file("mypython");
  CHECK(resolve_command({script}, {}, own_folder, Environment({{"PYTHON_EXEC", own}})).executable == own);
}

TEST_CASE("PYTHON_EXEC names the interpreter") {
  const Folder folder;
  const auto script = folder.file("train.py", false);
  const auto own = folder.file("mypython");
  CHECK(resolve_command({script}, {}, "/", Environment({{"PYTHON_EXEC", own}})).executable == own);
}

TEST_CASE("anything else is a program, and so is everything with --no_python") {
  const Folder folder;
  const auto program = folder.file("prog");
  CHECK(folder.resolve({program, "a"}).arguments == Words{program, "a"});
  CHECK(folder.resolve({"prog"}).executable == program);
  CHECK(folder.resolve({"prog"}).arguments == Words{"prog"});
  const auto script = folder.file("direct.py");
  CHECK(folder.resolve({script}, {.no_python = true}).executable == script);
  CHECK_THROWS_WITH(folder.resolve({"x"}, {.no_python = true, .module = true}),
                    "--module needs Python: it excludes --no_python");
}

TEST_CASE("folders and files on PATH that cannot be executed are skipped") {
  const Folder folder;
  std::filesystem::create_directories(folder / "first" / "prog");
  std::filesystem::create_directory(folder / "second");
  folder.file("second/prog", false);
  const auto program = folder.file("prog");
  const auto at = [&](const char* name) { return (folder / name).string(); };
  const Environment environment({{"PATH", at("first") + ":" + at("second") + "::" + folder.path().string()}});
  CHECK(resolve_command({"prog"}, {}, "/", environment).executable == program);
  Environment empty;
  empty.set("PATH", "");
  CHECK_THROWS_WITH(resolve_command({"prog"}, {}, "/", empty),
                    "cannot execute prog: No such file or directory (not on PATH either)");
}

TEST_CASE("a program that cannot be executed is refused with the cause") {
  const Folder folder;
  const auto plain = folder.file("plain", false);
  CHECK_THROWS_WITH(folder.resolve({plain}), "cannot execute " + plain + ": Permission denied");
  CHECK_THROWS_WITH(folder.resolve({"/no/such"}), "cannot execute /no/such: No such file or directory");
  CHECK_THROWS_WITH(folder.resolve({"/tmp"}), "cannot execute /tmp: it is a folder");
  CHECK_THROWS_WITH(folder.resolve({"."}), "cannot execute .: it is a folder");
}

TEST_CASE("only ${local_rank} is replaced in arguments") {
  const WorkerCommand command{.arguments = {"p", "a${local_rank}b${local_rank}", "$local_rank", "$$", "${other}"}};
  CHECK(arguments_for(command, 12) == Words{"p", "a12b12", "$local_rank", "$$", "${other}"});
}
