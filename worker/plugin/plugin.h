#pragma once

#include "worker/plugin/registry.h"

// The header that a plugin includes: a shared library with models, data sets and tasks of a user's own, which
// model.plugin names. It defines ddprun_register() and links the CMake target ddprun::plugin_interface, which defines
// DDPRUN_PLUGIN_VERSION.
extern "C" {

// Called once, before the train.cfg is checked. An exception ends the program as a mistake in the train.cfg does.
[[gnu::visibility("default")]] void ddprun_register(ddprun::plugin::Registry& registry);

// The version with which the plugin was built; compared before ddprun_register() is called.
[[gnu::visibility("default"), gnu::used]] inline const char* ddprun_plugin_version() {
  return DDPRUN_PLUGIN_VERSION;
}
[[gnu::visibility("default"), gnu::used]] inline std::uint64_t ddprun_plugin_layout() {
  return ddprun::plugin::layout_fingerprint();
}
}
