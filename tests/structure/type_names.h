#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::testing {

// The types that a source defines in named namespaces, and in types therein: "ddprun::trainer::Session". It leaves out
// those in functions and in namespaces without a name, which only that source sees, and specialisations of templates.
std::vector<std::string> defined_types(std::string_view source);

// "ddprun::Session: a.h b.h" for each type that several files under these folders of the tree define.
std::vector<std::string> types_defined_twice(const std::filesystem::path& tree, const std::vector<std::string>& parts);

}  // namespace ddprun::testing
