#pragma once

#include <string>
#include <string_view>

#include "ddprun/common/log.h"
#include "ddprun/launcher/output/console.h"

namespace ddprun {

// Log lines go through the console while there is one: in order with the workers' lines, and never waiting for a
// terminal.
class LogThroughConsole {
 public:
  explicit LogThroughConsole(Console& console) {
    log::set_writer([&console](std::string_view line) { console.write(Console::Stream::err, std::string(line)); });
  }
  ~LogThroughConsole() { log::set_writer(nullptr); }
  LogThroughConsole(const LogThroughConsole&) = delete;
  LogThroughConsole& operator=(const LogThroughConsole&) = delete;
};

}  // namespace ddprun
