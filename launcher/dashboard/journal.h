#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/unique_fd.h"
#include "launcher/dashboard/job_model.h"

namespace ddprun::dashboard {

inline constexpr const char* journal_name = "job.jsonl";

// The file from which ddprun report makes a page, even if the agent was killed: the messages of view_json.h, one a
// line. A point is written each second at first and each minute in a long job, so that the file stays below some
// megabytes; an event is written at once.
//
// Threads: one at a time. Errors: Errc::io from the constructor; after a write that failed it logs an error and writes
// nothing more.
class Journal {
 public:
  explicit Journal(std::filesystem::path path);

  // Writes what has changed, if it is time to.
  void update(const JobModel& model);
  // Writes what has changed.
  void flush(const JobModel& model);

 private:
  std::filesystem::path path_;
  UniqueFd file_;
  Version written_ = 0;
  Version last_event_ = 0;
  Milliseconds written_at_{};
};

// The complete lines of a journal. Throws Errc::io, and Errc::usage if the file is no journal.
std::vector<std::string> read_journal(const std::filesystem::path& path);

// The journal in this folder or, the newest one, in one of its folders. Throws Errc::usage if there is none.
std::filesystem::path find_journal(const std::filesystem::path& folder);

}  // namespace ddprun::dashboard
