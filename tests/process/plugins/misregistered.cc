// Mistakes of ddprun_register(), one for each macro.
#include <stdexcept>

#include "worker/plugin/plugin.h"

extern "C" void ddprun_register(ddprun::plugin::Registry& registry) {
#ifdef THROWS
  static_cast<void>(registry);
  throw std::runtime_error("no licence");
#endif
#ifdef THROWS_A_NUMBER
  static_cast<void>(registry);
  throw 7;
#endif
#ifdef NAME_THAT_EXISTS
  registry.models.add("cnn", nullptr);
#endif
#ifdef KEY_THAT_EXISTS
  registry.setting<double>("optim.lr", 1, {});
#endif
}
