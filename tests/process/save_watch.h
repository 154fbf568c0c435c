#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <sys/inotify.h>
#include <unistd.h>

#include "common/unique_fd.h"

namespace ddprun::testing {

// Watches what a process does in the folder of its checkpoints, as it happens.
class SaveWatch {
 public:
  explicit SaveWatch(const std::filesystem::path& folder)
      : folder_(folder), fd_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
    std::filesystem::create_directories(folder);
    watch(folder);
  }

  // Returns the number of acts so far: files and folders made, closed, renamed and removed.
  int acts() {
    alignas(inotify_event) std::array<char, 65536> block;
    for (ssize_t size = 0; (size = ::read(fd_.get(), block.data(), block.size())) > 0;)
      for (const char* at = block.data(); at < block.data() + size;) {
        const auto* event = reinterpret_cast<const inotify_event*>(at);
        note(*event, event->len > 0 ? event->name : "");
        at += sizeof(inotify_event) + event->len;
      }
    return acts_;
  }
  // Returns the step of the newest checkpoint that has got its name; 0 if there is none.
  std::int64_t published() const { return times_published_.empty() ? 0 : times_published_.rbegin()->first; }
  // Returns by step how often a checkpoint has got that name.
  const std::map<std::int64_t, int>& times_published() const { return times_published_; }

 private:
  void watch(const std::filesystem::path& folder) {
    ::inotify_add_watch(fd_.get(), folder.c_str(),
                        IN_CREATE | IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE);
  }
  void note(const inotify_event& event, const std::string& name) {
    ++acts_;
    if ((event.mask & IN_CREATE) != 0 && (event.mask & IN_ISDIR) != 0) watch(folder_ / name);
    if ((event.mask & IN_MOVED_TO) != 0 && name.starts_with("step_")) ++times_published_[std::stoll(name.substr(5))];
  }

  const std::filesystem::path folder_;
  const UniqueFd fd_;
  int acts_ = 0;
  std::map<std::int64_t, int> times_published_;
};

}  // namespace ddprun::testing
