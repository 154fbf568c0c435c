#include "common/log.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include "common/printable.h"

namespace ddprun::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::trace:
      return spdlog::level::trace;
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warn:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
    case Level::off:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

// Writes to standard error, or to the writer.
class LineSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void set_writer(std::function<void(std::string_view)> writer) {
    const std::lock_guard lock(mutex_);
    writer_ = std::move(writer);
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    if (writer_) return writer_({line.data(), line.size()});
    std::fwrite(line.data(), 1, line.size(), stderr);
  }
  void flush_() override { std::fflush(stderr); }

  std::function<void(std::string_view)> writer_;
};

std::shared_ptr<LineSink>& sink() {
  static auto instance = std::make_shared<LineSink>();
  return instance;
}

std::shared_ptr<spdlog::logger> make_logger(std::string_view component, Level level) {
  auto logger = std::make_shared<spdlog::logger>(std::string(component), sink());
  logger->set_pattern("[%n] %l: %v");
  logger->set_level(to_spdlog(level));
  logger->flush_on(spdlog::level::trace);
  return logger;
}

std::shared_ptr<spdlog::logger>& logger() {
  static std::shared_ptr<spdlog::logger> instance = make_logger("ddprun", Level::info);
  return instance;
}

// Escapes control characters other than newlines and tabs: a message may quote a damaged file.
std::string printable_lines(std::string_view text) {
  std::string result;
  for (;;) {
    const auto at = text.find_first_of("\n\t");
    result += printable(text.substr(0, at), std::string::npos);
    if (at == std::string_view::npos) return result;
    result += text[at];
    text.remove_prefix(at + 1);
  }
}

}  // namespace

void init(std::string_view component, Level level) {
  logger() = make_logger(component, level);
}

void set_writer(std::function<void(std::string_view line)> writer) {
  sink()->set_writer(std::move(writer));
}

Level parse_level(std::string_view name, Level fallback) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  struct LevelName {
    std::string_view name;
    Level level;
  };
  static constexpr std::array rows = {
      LevelName{"trace", Level::trace}, LevelName{"debug", Level::debug},    LevelName{"info", Level::info},
      LevelName{"warn", Level::warn},   LevelName{"warning", Level::warn},   LevelName{"error", Level::error},
      LevelName{"err", Level::error},   LevelName{"critical", Level::error}, LevelName{"off", Level::off}};
  for (const auto& row : rows)
    if (row.name == lower) return row.level;
  return fallback;
}

bool enabled(Level level) {
  return logger()->should_log(to_spdlog(level));
}

void write(Level level, std::string_view text) {
  logger()->log(to_spdlog(level), "{}", printable_lines(text));
}

}  // namespace ddprun::log
