#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

// Of this project, "0.1.0".
std::string_view project_version();

struct LibraryVersion {
  std::string name;
  std::string version;
};

// "1.81.0" of a number that has two digits for the patch and two or three for the minor version, as Boost (108100 with
// minor_unit 100 and major_unit 100000) and others write theirs.
std::string version_of_number(int number, int minor_unit, int major_unit);

// The text of --version: the program, the given libraries together with those that every program has, the compiler.
std::string version_text(std::string_view program, std::vector<LibraryVersion> libraries);

}  // namespace ddprun
