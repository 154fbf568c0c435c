#include "launcher/report/event_log.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include "common/error.h"
#include "common/log.h"
#include "common/unique_fd.h"
#include "common/wall_clock.h"

namespace ddprun {
namespace {

// Appends each line with one write, since several agents may share the file.
class EventFile {
 public:
  explicit EventFile(std::string path) : path_(std::move(path)) {
    // O_NONBLOCK: the job does not wait for the reader of a FIFO.
    file_ = UniqueFd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0644));
    if (!file_)
      throw make_error(Errc::io, "cannot open the event log {}: {}", path_,
                       errno == ENXIO ? "no process reads this FIFO" : errno_text(errno));
  }
  void write(const std::string& line) {
    if (!file_) return;
    const auto got = ::write(file_.get(), line.data(), line.size());
    if (got == static_cast<ssize_t>(line.size())) return;
    log::error("cannot write the event log {}: {}; no further events are written", path_,
               errno_text(got < 0 ? errno : ENOSPC));
    file_.reset();
  }

 private:
  std::string path_;
  UniqueFd file_;
};

}  // namespace

std::unique_ptr<EventReporter> open_event_log(const EventTarget& target, EventFacts facts, Console& console) {
  if (target.kind == EventTarget::Kind::none) return nullptr;
  EventReporter::Sink sink = [&console](std::string line) {
    console.write(Console::Stream::err, std::move(line) + "\n");
  };
  if (target.kind == EventTarget::Kind::file)
    sink = [file = std::make_shared<EventFile>(target.path)](const std::string& line) { file->write(line + "\n"); };
  return std::make_unique<EventReporter>(std::move(facts), wall_clock, std::move(sink));
}

}  // namespace ddprun
