// Mistakes of a plugin, one for each macro: built without this project's headers, with functions of its own.
#include <cstdint>
#include <stdexcept>

extern "C" {
#ifdef OLD_VERSION
const char* ddprun_plugin_version() {
  return "0.0.9";
}
void ddprun_register(void*) {}
#endif
#ifdef OTHER_HEADERS
const char* ddprun_plugin_version() {
  return DDPRUN_PLUGIN_VERSION;
}
std::uint64_t ddprun_plugin_layout() {
  return 1;
}
void ddprun_register(void*) {}
#endif
#ifdef UNDEFINED_SYMBOL
void there_is_no_such_function();
void ddprun_register(void*) {
  there_is_no_such_function();
}
#endif
int a_plugin_without_any_of_them() {
  return 0;
}
}
