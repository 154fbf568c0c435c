#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/process/launch.h"
#include "tests/support/temp_dir.h"

namespace ddprun::testing {

// A folder for control sockets of its own, and a file for whose creation the workers wait.
struct Machine {
  TempDir folder;
  TempDir runtime;

  Variables variables() const { return {{"DDPRUN_RUNTIME_DIR", runtime.path().string()}}; }
  std::string file(const std::string& name) const { return (folder / name).string(); }
  void release() const { std::ofstream(file("go")).put('\n'); }
  bool exists(const std::string& name) const { return std::filesystem::exists(folder / name); }
  bool exist(const std::string& name, int workers) const {
    for (int rank = 0; rank < workers; ++rank)
      if (!exists(name + std::to_string(rank))) return false;
    return true;
  }
  // Each worker executes the first verbs, prints a line, waits to be released, and executes the others.
  Child start(const Words& options, Words first, const Words& then) const {
    first.insert(first.end(), {"touch=" + file("up${local_rank}"), "wait-file=" + file("go")});
    first.insert(first.end(), then.begin(), then.end());
    return Child(command(options, first), variables());
  }
  Child attach(Words words) const {
    words.insert(words.begin(), {DDPRUN_PROGRAM, "attach"});
    return Child(words, variables());
  }
  Child::Result ask(const Words& words) const { return attach(words).wait(); }
};

}  // namespace ddprun::testing
