#include "launcher/report/failure_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <unistd.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/core.h>

#include "common/atomic_file.h"
#include "common/bounded_file.h"
#include "common/error.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "common/printable.h"
#include "common/rank_label.h"
#include "common/signal_name.h"
#include "rendezvous/membership/worker_failure.h"

namespace ddprun {
namespace {

namespace json = boost::json;

std::optional<double> to_seconds(const json::value* value) {
  if (!value) return std::nullopt;
  if (value->is_number()) return value->to_number<double>();
  if (!value->is_string()) return std::nullopt;
  const std::string text(value->as_string());
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') return std::nullopt;
  return seconds;
}

std::string text_of(const json::value* value) {
  return value && value->is_string() ? std::string(value->as_string()) : std::string();
}

std::string local_time(std::int64_t time_us) {
  const std::time_t seconds = time_us / 1'000'000;
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d_%H:%M:%S", &parts)};
}

std::string indented(std::string_view text, std::string_view indent) {
  std::string result;
  for (const char c : text) {
    result += c;
    if (c == '\n') result += indent;
  }
  return result;
}

std::string record(int number, const WorkerFailure& f) {
  const int code = f.signal_number != 0 ? -f.signal_number : f.exit_code;
  const auto name = f.signal_number != 0 ? " (" + signal_name(f.signal_number) + ")" : "";
  const auto label = f.label.empty() ? "" : ", " + f.label;
  return fmt::format(
      "[{}]:\n"
      "  time      : {}\n"
      "  host      : {}\n"
      "  rank      : {} (local_rank: {}{})\n"
      "  exitcode  : {} (pid: {}) {}\n"
      "  error_file: {}\n"
      "  traceback : {}\n",
      number, local_time(f.time_us), f.host, f.rank, f.local_rank, label, code, f.pid, name,
      f.error_file.empty() ? "<N/A>" : f.error_file, indented(f.message, "  "));
}

// The last line, shortened to a readable length; in a traceback that line is the exception.
std::string last_line_of(const std::string& message) {
  constexpr std::size_t max_length = 300;
  const auto end = message.find_last_not_of(" \n");
  if (end == std::string::npos) return {};
  const auto newline = message.rfind('\n', end);
  const auto begin = newline == std::string::npos ? 0 : newline + 1;
  const auto line = message.substr(begin, end + 1 - begin);
  return line.size() > max_length ? line.substr(0, max_length) + "..." : line;
}

// The exception that ended a Python program without an error file: the line after the last frame of the traceback in
// its standard error.
std::string exception_in(const std::string& last_lines) {
  const auto frame = last_lines.rfind("  File \"");
  if (frame == std::string::npos) return {};
  auto begin = last_lines.find('\n', frame);
  while (begin != std::string::npos && begin + 1 < last_lines.size() && last_lines[begin + 1] == ' ')
    begin = last_lines.find('\n', begin + 1);
  if (begin == std::string::npos) return {};
  return last_line_of(last_lines.substr(begin, last_lines.find('\n', begin + 1) - begin));
}

// The message has torchrun's wording, extended by other known facts.
std::string message_without_file(const FailedWorker& worker, const ProcessExit& exit) {
  if (exit.signal_number == 0)
    return worker.cause.empty() ? "the worker wrote no error file; see the end of its standard error" : worker.cause;
  const auto text =
      fmt::format("Signal {} ({}) received by PID {}", exit.signal_number, signal_name(exit.signal_number), exit.pid);
  const bool adds_nothing = worker.cause.empty() || worker.cause.starts_with("ended by");
  return adds_nothing ? text : text + ": " + worker.cause;
}

// Counts characters, not bytes: UTF-8 continuation bytes do not count.
std::size_t characters(std::string_view line) {
  return static_cast<std::size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string rule(std::string_view body, char c) {
  std::size_t longest = 0;
  while (!body.empty()) {
    const auto line = body.substr(0, body.find('\n'));
    longest = std::max(longest, characters(line));
    body.remove_prefix(std::min(line.size() + 1, body.size()));
  }
  return std::string(std::min<std::size_t>(longest, 60), c) + "\n";
}

}  // namespace

std::optional<ErrorFile> parse_error_file(std::string_view text) {
  boost::system::error_code failure;
  const auto document = json::parse(json::string_view(text.data(), text.size()), failure);
  if (failure || !document.is_object()) return std::nullopt;
  const auto* outer = document.as_object().if_contains("message");
  if (!outer) return std::nullopt;
  ErrorFile result;
  if (outer->is_object()) {
    const auto& message = outer->as_object();
    result.message = text_of(message.if_contains("message"));
    if (const auto* extra = message.if_contains("extraInfo"); extra && extra->is_object()) {
      result.timestamp = to_seconds(extra->as_object().if_contains("timestamp"));
      const auto* consequence = extra->as_object().if_contains("consequence");
      result.consequence = consequence && consequence->is_bool() && consequence->as_bool();
      const auto* usage_error = extra->as_object().if_contains("usage_error");
      result.usage_error = usage_error && usage_error->is_bool() && usage_error->as_bool();
      if (auto stack = text_of(extra->as_object().if_contains("py_callstack")); !stack.empty())
        result.message = std::move(stack);
    }
  } else {
    result.message = text_of(outer);
    result.timestamp = to_seconds(document.as_object().if_contains("timestamp"));
  }
  while (!result.message.empty() && result.message.back() == '\n') result.message.pop_back();
  return result;
}

std::int64_t failure_time_us(std::int64_t noticed_us, std::optional<double> timestamp) {
  // Ignores a value that is no time, or in the future: it may have another unit and exceed 64 bits.
  const bool past = timestamp && *timestamp > 0 && *timestamp * 1e6 < static_cast<double>(noticed_us);
  if (!past) return noticed_us;
  const bool whole_second = *timestamp == std::floor(*timestamp);
  const auto stamp = static_cast<std::int64_t>(*timestamp * 1e6) + (whole_second ? 999'999 : 0);
  return std::min(noticed_us, stamp);
}

std::string cause_of(const ProcessExit& exit, const MemoryEvidence::Finding& memory) {
  using Answer = MemoryEvidence::Finding::Answer;
  if (exit.signal_number == SIGBUS) return "ended by SIGBUS (a mapped file was cut short, or /dev/shm is full)";
  if (exit.signal_number == 0)  // 137: a shell whose child was killed
    return memory.answer == Answer::yes ? fmt::format("exit code {}: {}", exit.code, memory.text) : "";
  if (exit.signal_number != SIGKILL) return {};
  if (memory.answer == Answer::yes) return memory.text;
  return memory.answer == Answer::no ? "ended by SIGKILL (another process sent it: the kernel had memory left)"
                                     : "ended by SIGKILL (another process sent it, or the kernel had no memory left)";
}

WorkerFailure describe_failure(const FailedWorker& worker, const ProcessExit& exit, std::int64_t noticed_us) {
  WorkerFailure failure{.rank = worker.rank,
                        .local_rank = worker.local_rank,
                        .group_rank = worker.group_rank,
                        .host = worker.host,
                        .pid = exit.pid,
                        .exit_code = exit.code,
                        .signal_number = exit.signal_number,
                        .time_us = noticed_us,
                        .last_lines = worker.last_lines,
                        .cause = worker.cause,
                        .label = read_rank_label(worker.error_file)};
  std::optional<ErrorFile> file;
  std::error_code ignored;
  if (!worker.error_file.empty() && std::filesystem::exists(worker.error_file, ignored)) {
    failure.error_file = worker.error_file;
    try {
      file = parse_error_file(read_regular_file(worker.error_file, largest_error_file));
      if (!file) failure.message = "(the error file is not valid JSON of torchrun's form)";
    } catch (const Error& e) {
      failure.message = fmt::format("(the error file: {})", e.what());
    }
  }
  if (file) {
    failure.message = file->message;
    failure.time_us = failure_time_us(noticed_us, file->timestamp);
    failure.consequence = file->consequence;
    failure.usage_error = file->usage_error && exit.code == exit_usage && !file->message.empty();
    if (const auto line = last_line_of(file->message); exit.signal_number == 0 && !line.empty())
      failure.cause = end_description(failure) + ": " + line;
  } else if (failure.message.empty()) {
    failure.message = message_without_file(worker, exit);
    constexpr int uncaught = 1;  // Python's exit code for an uncaught exception
    if (const auto line = exception_in(worker.last_lines);
        exit.code == uncaught && !line.empty() && worker.cause.empty())
      failure.cause = end_description(failure) + ": " + line;
  }
  return failure;
}

void root_cause_first(std::vector<WorkerFailure>& failures) {
  std::stable_sort(failures.begin(), failures.end(), is_likelier_cause);
}

std::string scheduler_error_file(const WorkerFailure& root) {
  json::object document;
  try {
    if (!root.error_file.empty())
      document = json::parse(read_regular_file(root.error_file, largest_error_file)).as_object();
  } catch (const std::exception&) {
    document.clear();  // unreadable or on another host: it is made from the failure itself
  }
  auto* message = document.if_contains("message");
  if (!message || !message->is_object()) {
    const auto stamp = std::to_string(root.time_us / 1'000'000);
    document["message"] = {{"message", root.message},
                           {"extraInfo", {{"py_callstack", root.message}, {"timestamp", stamp}}}};
    message = document.if_contains("message");
  }
  message->as_object()["errorCode"] = root.signal_number != 0 ? -root.signal_number : root.exit_code;
  return valid_json(json::serialize(document));
}

void check_scheduler_file(const Environment& environment) {
  const std::filesystem::path path = environment.get("TORCHELASTIC_ERROR_FILE").value_or("");
  if (path.empty()) return;
  std::error_code ignored;
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  const auto& written = std::filesystem::is_other(path, ignored) ? path : folder;
  if (::access(written.c_str(), W_OK) != 0)
    log::warn("TORCHELASTIC_ERROR_FILE = {} cannot be written: {}; a failure of the job will not be there",
              path.string(), errno_text(errno));
}

void report_to_scheduler(const Environment& environment, const std::string& error_file) {
  const auto path = environment.get("TORCHELASTIC_ERROR_FILE");
  if (!path || path->empty()) return;
  try {
    write_file_atomically(*path, error_file);
  } catch (const Error& e) {
    log::warn("the job's failure is not in TORCHELASTIC_ERROR_FILE: {}", e.what());
  }
}

std::string failure_summary(const std::string& title, const std::vector<WorkerFailure>& failures) {
  if (failures.empty() || failures.front().usage_error) return {};
  std::string others;
  for (std::size_t i = 1; i < failures.size(); ++i) others += record(static_cast<int>(i), failures[i]);
  if (others.empty()) others = "  <NO_OTHER_FAILURES>\n";
  const auto heading = title + " FAILED\n";
  const auto root_record = record(0, failures.front());
  const auto measured = heading + (failures.size() > 1 ? others : "") + root_record;  // without the headings below
  const auto root_part = "Root Cause (first observed failure):\n" + root_record;
  const auto thick = rule(measured, '=');
  const auto thin = rule(measured, '-');
  auto text = thick + heading + thin + "Failures:\n" + others + thin + root_part + thick;
  const auto& root = failures.front();
  const auto reason = last_line_of(root.message);
  const bool is_told = !reason.empty() && last_line_of(root.last_lines).find(reason) != std::string::npos;
  if (!root.last_lines.empty() && !is_told)
    text += fmt::format("The end of rank {}'s standard error:\n  {}\n", root.rank, indented(root.last_lines, "  "));
  return text;
}

}  // namespace ddprun
