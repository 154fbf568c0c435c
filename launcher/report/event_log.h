#pragma once

#include <memory>

#include "ddprun/launcher/output/console.h"
#include "ddprun/launcher/report/events.h"

namespace ddprun {

// What writes the agent's events where the target says; null when nobody wants them. The console is borrowed. Throws
// Errc::io when the file cannot be opened. A file that cannot be written any more is said so once.
std::unique_ptr<EventTeller> open_event_log(const EventTarget& target, EventFacts facts, Console& console);

}  // namespace ddprun
