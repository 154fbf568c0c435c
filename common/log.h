#pragma once

#include <functional>
#include <string_view>
#include <utility>

#include <fmt/core.h>

// The process's logger: complete lines on standard error, "[component] level: text", made
// printable(). Thread-safe.
namespace ddprun::log {

enum class Level { trace, debug, info, warn, error, off };

// component: "ddprun", "ddprun-worker rank 1", ... Call once, early in main; the default is "ddprun".
void init(std::string_view component, Level level = Level::info);
// Accepts names in any case, including Python's (WARNING, CRITICAL); an unknown one gives fallback.
Level parse_level(std::string_view name, Level fallback);
bool enabled(Level level);
// Sends complete lines, with their newline, to writer instead of standard error, for a program that must not block on
// its terminal; nullptr restores standard error. Any thread that logs calls writer.
void set_writer(std::function<void(std::string_view line)> writer);
void write(Level level, std::string_view text);

template <class... Args>
void log(Level level, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(level)) write(level, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  log(Level::debug, format, std::forward<Args>(args)...);
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  log(Level::info, format, std::forward<Args>(args)...);
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  log(Level::warn, format, std::forward<Args>(args)...);
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  log(Level::error, format, std::forward<Args>(args)...);
}

}  // namespace ddprun::log
