#pragma once

#include <string>
#include <string_view>

#include "common/log.h"
#include "launcher/output/console.h"

namespace ddprun {

// Redirects the log to the console for its lifetime, so that log lines keep their order among the workers' lines and
// logging never waits for a terminal.
//
// Borrows the console, which must outlive it. Threads: create and destroy it on one thread; any thread may log. Errors:
// none. There may be one at a time.
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
