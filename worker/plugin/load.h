#pragma once

#include <filesystem>

#include "worker/plugin/registry.h"

namespace ddprun::plugin {

// Loads a shared library and calls its ddprun_register(). Its code runs with the rights of the process, and stays
// loaded until the process ends. Throws Errc::usage naming the file: one that is missing or no shared library, was
// built for another version, does not export ddprun_register(), or whose ddprun_register() throws.
Registry load(const std::filesystem::path& path);

}  // namespace ddprun::plugin
