#pragma once

#include <memory>

#include "launcher/output/console.h"
#include "launcher/report/events.h"

namespace ddprun {

// Creates the reporter that writes the agent's events to the target; null for the target none. Borrows the console,
// which must outlive it. Throws Errc::io when the file cannot be opened; a later write error is logged once.
std::unique_ptr<EventReporter> open_event_log(const EventTarget& target, EventFacts facts, Console& console);

}  // namespace ddprun
