#include "worker/profiler/device_log.h"

#include <utility>

namespace ddprun::profiler {

void DeviceLog::begin(Kind kind, std::string name, std::string module, Point at) {
  open_.push_back(entries_.size());
  LogEntry& entry = add(LogEntry::What::operation_begins, at);
  entry.kind = kind;
  entry.name = std::move(name);
  entry.module = std::move(module);
}

void DeviceLog::end(Point at) {
  open_.pop_back();
  add(LogEntry::What::operation_ends, at);
}

}  // namespace ddprun::profiler
