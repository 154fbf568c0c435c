#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

// The version of this project, "0.1.0".
std::string_view project_version();

struct LibraryVersion {
  std::string name;
  std::string version;
};

// "1.81.0" from a version number as Boost defines it: 108100, with minor_unit 100 and major_unit 100000.
std::string version_of_number(int number, int minor_unit, int major_unit);

// The text of --version: the program, its libraries, including those that every program links, and the compiler.
std::string version_text(std::string_view program, std::vector<LibraryVersion> libraries);

}  // namespace ddprun
