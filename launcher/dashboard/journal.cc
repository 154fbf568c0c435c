#include "launcher/dashboard/journal.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <optional>
#include <unistd.h>

#include <boost/json/parse.hpp>

#include "common/bounded_file.h"
#include "common/error.h"
#include "common/log.h"
#include "launcher/dashboard/view_json.h"

namespace ddprun::dashboard {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t largest_journal = 256 << 20;

// The interval is a thousandth of the time that has passed.
Milliseconds interval_after(Milliseconds passed) {
  return std::clamp(passed / 1000, Milliseconds(1'000), Milliseconds(60'000));
}

bool is_message(const std::string& line) {
  boost::system::error_code failure;
  const auto value = boost::json::parse(line, failure);
  return !failure && value.is_object() && value.get_object().contains("v") && value.get_object().contains("job");
}

}  // namespace

Journal::Journal(fs::path path) : path_(std::move(path)) {
  file_ = UniqueFd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
  if (!file_) throw make_error(Errc::io, "cannot open {}: {}", path_.string(), errno_text(errno));
}

void Journal::update(const JobModel& model) {
  const auto& view = model.view();
  const auto newest = view.events.empty() ? 0 : view.events.back().version;
  const bool due = view.now - written_at_ >= interval_after(view.now - view.began);
  if (view.version > written_ && (due || newest > last_event_)) flush(model);
}

void Journal::flush(const JobModel& model) {
  if (!file_) return;
  const auto& view = model.view();
  const auto line = changes_json(model, written_) + "\n";
  const auto got = ::write(file_.get(), line.data(), line.size());
  written_ = view.version;
  written_at_ = view.now;
  if (!view.events.empty()) last_event_ = view.events.back().version;
  if (got == static_cast<ssize_t>(line.size())) return;
  log::error("cannot write {}: {}; ddprun report will lack what follows", path_.string(),
             errno_text(got < 0 ? errno : ENOSPC));
  file_.reset();
}

std::vector<std::string> read_journal(const fs::path& path) {
  const auto text = read_regular_file(path, largest_journal);
  std::vector<std::string> lines;
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    auto line = text.substr(begin, end - begin);
    if (is_message(line)) lines.push_back(std::move(line));
  }
  if (lines.empty()) throw make_error(Errc::usage, "{} is not the record of a job", path.string());
  return lines;
}

fs::path find_journal(const fs::path& folder) {
  std::error_code failure;
  if (fs::is_regular_file(folder / journal_name, failure)) return folder / journal_name;
  std::optional<fs::path> newest;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    const auto path = entry.path() / journal_name;
    std::error_code absent;
    if (!fs::is_regular_file(path, absent)) continue;
    if (!newest || fs::last_write_time(path, absent) > fs::last_write_time(*newest, absent)) newest = path;
  }
  if (failure) throw make_error(Errc::usage, "cannot read {}: {}", folder.string(), failure.message());
  if (!newest)
    throw make_error(Errc::usage, "{} has no {}: name the --log_dir of a job, or a folder in it", folder.string(),
                     journal_name);
  return *newest;
}

}  // namespace ddprun::dashboard
