#include "launcher/dashboard/screen_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <optional>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <boost/system/system_error.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include "common/error.h"
#include "common/printable.h"

namespace ddprun::dashboard {
namespace {

namespace json = boost::json;

constexpr std::array<const char*, 8> levels = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::size_t name_width = 12;
constexpr std::size_t most_events = 8;

std::optional<double> number(const json::value& value) {
  if (!value.is_number()) return std::nullopt;
  return value.to_number<double>();
}

std::string text(const json::object& object, const char* key) {
  const auto& value = object.at(key).as_string();
  return printable({value.data(), value.size()}, 400);
}

std::string clock_text(std::int64_t milliseconds) {
  return fmt::format("{:%H:%M:%S}", fmt::localtime(static_cast<std::time_t>(milliseconds / 1000)));
}

// Returns one line. Only the curves have characters of several bytes, and they are not cut.
std::string line(const std::string& name, const std::string& content, std::size_t columns) {
  const auto whole = name.empty() ? content : fmt::format("{:<{}}{}", name, name_width, content);
  return whole.substr(0, columns) + "\n";
}

// Wraps the text at a comma, where it is too long for one line.
std::string wrapped(std::string text, std::size_t columns) {
  std::string lines;
  while (text.size() > columns) {
    const auto comma = text.rfind(", ", columns - 2);
    if (comma == std::string::npos) break;
    lines += text.substr(0, comma + 1) + "\n";
    text.erase(0, comma + 2);
  }
  return lines + line("", text, columns);
}

std::string progress_line(const json::object& training, std::size_t columns) {
  const auto step = training.at("step").to_number<std::int64_t>();
  const auto total = training.at("total_steps").to_number<std::int64_t>();
  if (total <= 0) return "";
  const auto room = std::min<std::size_t>(40, columns > 30 ? columns - 30 : 10);
  const double share = std::clamp(static_cast<double>(step) / static_cast<double>(total), 0.0, 1.0);
  std::string bar(static_cast<std::size_t>(share * static_cast<double>(room)), '=');
  bar.resize(room, ' ');
  return line("", fmt::format("[{}] {:.1f} %, epoch {}", bar, 100 * share, training.at("epoch").to_number<int>()),
              columns);
}

std::string curve_line(const json::object& view, const char* name, std::size_t column, std::size_t columns) {
  std::vector<double> values;
  for (const auto& point : view.at("points").as_array())
    if (const auto value = number(point.as_array().at(column))) values.push_back(*value);
  if (values.empty()) return "";
  const auto room = columns > name_width + 24 ? columns - name_width - 24 : 10;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return fmt::format("{:<{}}{} {:.4g}  ({:.4g} to {:.4g})\n", name, name_width, curve_text(values, room), values.back(),
                     *low, *high);
}

// A character for each rank: its lateness in tenths of a step, or its state.
char rank_mark(const json::array& rank, double step_seconds) {
  constexpr std::string_view states = "?.FdX";
  const auto state = rank.at(4).to_number<std::size_t>();
  const auto lateness = number(rank.at(5));
  if (state != 1 || !lateness || step_seconds <= 0) return states.at(std::min(state, states.size() - 1));
  const auto tenths = static_cast<int>(*lateness / 1e6 / step_seconds * 10);
  return tenths < 1 ? '.' : static_cast<char>('0' + std::min(tenths, 9));
}

std::string ranks_lines(const json::object& view, double step_seconds, std::size_t columns) {
  std::string marks;
  for (const auto& rank : view.at("ranks").as_array()) marks += rank_mark(rank.as_array(), step_seconds);
  const auto room = std::max<std::size_t>(10, columns > name_width ? columns - name_width : 10);
  std::string lines;
  for (std::size_t begin = 0; begin < marks.size(); begin += room)
    lines += line(begin == 0 ? "ranks" : " ", marks.substr(begin, room), columns);
  return lines;
}

std::string shares_line(const json::object& training, std::size_t columns) {
  double all = 0;
  for (const auto* part : {"compute", "communication", "data"}) all += number(training.at(part)).value_or(0);
  if (all <= 0) return "";
  std::string shares;
  for (const auto* part : {"compute", "communication", "data"})
    shares += fmt::format("{}{} {:.0f} %", shares.empty() ? "" : ", ", part,
                          100 * number(training.at(part)).value_or(0) / all);
  return line("step", shares, columns);
}

std::string time_line(const json::object& job, std::size_t columns) {
  std::string parts;
  for (const auto& [name, seconds] : job.at("seconds").as_object())
    if (const auto value = number(seconds).value_or(0); value >= 0.05)
      parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", std::string_view(name.data(), name.size()),
                           duration_text(value));
  return line("time", parts, columns);
}

std::string recovery_lines(const json::object& view, std::size_t columns) {
  std::string lines;
  const auto& generations = view.at("generations").as_array();
  const auto first = generations.size() > 3 ? generations.size() - 3 : 0;
  for (std::size_t i = first; i < generations.size(); ++i) {
    const auto& generation = generations[i].as_object();
    std::string phases;
    for (const auto* phase : {"detect", "agree", "restart", "heal", "replay"})
      if (const auto value = generation.at(phase).to_number<std::int64_t>(); value >= 0)
        phases += fmt::format("{} {} ms, ", phase, number_text(value));
    lines += line(fmt::format("round {}", generation.at("generation").to_number<std::int64_t>()),
                  phases + text(generation, "reason"), columns);
  }
  return lines;
}

std::string event_lines(const json::object& view, std::size_t room, std::size_t columns) {
  std::string lines;
  const auto& events = view.at("events").as_array();
  for (auto i = events.size() - std::min(room, events.size()); i < events.size(); ++i) {
    const auto& event = events[i].as_object();
    lines += line(clock_text(event.at("ms").to_number<std::int64_t>()),
                  fmt::format("{}: {}", text(event, "kind"), text(event, "text")), columns);
  }
  return lines;
}

std::string screen(const json::object& view, std::size_t columns, std::size_t rows) {
  const auto& job = view.at("job").as_object();
  auto lines = line("", fmt::format("{} ({}) on host {}", text(job, "run_id"), text(job, "program"), text(job, "host")),
                    columns);
  lines += wrapped(text(job, "sentence"), columns);
  double step_seconds = 0;
  if (const auto* training = job.at("training").if_object()) {
    step_seconds = number(training->at("step_seconds")).value_or(0);
    lines += progress_line(*training, columns);
    lines += curve_line(view, "loss", 2, columns) + curve_line(view, "samples/s", 3, columns);
    lines += shares_line(*training, columns);
  }
  lines += time_line(job, columns) + ranks_lines(view, step_seconds, columns) + recovery_lines(view, columns);
  const auto used = static_cast<std::size_t>(std::count(lines.begin(), lines.end(), '\n'));
  return lines + event_lines(view, std::min(most_events, rows > used + 1 ? rows - used - 1 : 0), columns);
}

}  // namespace

std::string loss_text(const JobView& view, int columns) {
  constexpr std::size_t least_points = 4;
  constexpr std::size_t widest = 60;
  constexpr std::size_t figures_width = 48;
  std::vector<double> losses;
  for (const auto& point : view.points)
    if (std::isfinite(point.loss)) losses.push_back(point.loss);
  if (losses.size() < least_points || !view.training) return "";
  // The last steps may be too close to the point before them to have their own.
  const bool is_last = view.points.back().step == view.training->step;
  if (!is_last && std::isfinite(view.training->loss)) losses.push_back(view.training->loss);
  const auto all = static_cast<std::size_t>(std::max(20, columns));
  const auto room = std::clamp<std::size_t>(all > figures_width ? all - figures_width : 0, 8, widest);
  const auto [low, high] = std::minmax_element(losses.begin(), losses.end());
  return fmt::format("loss {} {:.4g} after {} steps, {:.4g} to {:.4g}\n", curve_text(losses, room), losses.back(),
                     number_text(view.training->step), *low, *high);
}

std::string curve_text(const std::vector<double>& values, std::size_t columns) {
  if (values.empty() || columns == 0) return "";
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const auto width = std::min(columns, values.size());
  std::string curve;
  for (std::size_t column = 0; column < width; ++column) {
    const auto begin = column * values.size() / width, end = (column + 1) * values.size() / width;
    double sum = 0;
    for (auto i = begin; i < end; ++i) sum += values[i];
    const double mean = sum / static_cast<double>(end - begin);
    const double share = *high > *low ? (mean - *low) / (*high - *low) : 0;
    curve += levels.at(static_cast<std::size_t>(std::lround(share * static_cast<double>(levels.size() - 1))));
  }
  return curve;
}

std::string screen_text(std::string_view text, int columns, int rows) {
  try {
    const auto view = json::parse(json::string_view(text.data(), text.size()));
    return screen(view.as_object(), static_cast<std::size_t>(std::max(20, columns)),
                  static_cast<std::size_t>(std::max(1, rows)));
  } catch (const std::exception& e) {
    const auto* json_error = dynamic_cast<const boost::system::system_error*>(&e);
    throw make_error(Errc::protocol, "not the view of a job: {}", json_error ? json_error->code().message() : e.what());
  }
}

}  // namespace ddprun::dashboard
