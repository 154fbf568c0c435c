#include "launcher/dashboard/trace.h"

#include <array>
#include <cmath>
#include <utility>

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "common/printable.h"

namespace ddprun::dashboard {
namespace {

namespace json = boost::json;

enum Row : int { of_rounds = 1, of_phases, of_events };

// The format has microseconds.
std::int64_t microseconds(Milliseconds time) {
  return 1000 * time.count();
}

json::object span(Row row, std::string name, Milliseconds begin, Milliseconds duration) {
  return {{"ph", "X"},
          {"pid", 1},
          {"tid", static_cast<int>(row)},
          {"name", std::move(name)},
          {"ts", microseconds(begin)},
          {"dur", microseconds(duration)}};
}

json::object named(Row row, const char* name) {
  return {{"ph", "M"}, {"pid", 1}, {"tid", static_cast<int>(row)}, {"name", "thread_name"}, {"args", {{"name", name}}}};
}

json::object counter(const char* name, Milliseconds time, double value) {
  return {{"ph", "C"}, {"pid", 1}, {"name", name}, {"ts", microseconds(time)}, {"args", {{name, value}}}};
}

// Detection begins before the round is proposed; the other phases follow each other up to the first step and beyond.
void add_phases(json::array& events, const GenerationView& generation) {
  auto time = generation.started;
  if (generation.agree.count() >= 0) time -= generation.agree;
  if (generation.detect.count() >= 0) time -= generation.detect;
  const std::array phases{std::pair("detect", generation.detect), std::pair("agree", generation.agree),
                          std::pair("restart", generation.restart), std::pair("heal", generation.heal),
                          std::pair("replay", generation.replay)};
  for (const auto& [name, duration] : phases) {
    if (duration.count() < 0) continue;
    events.push_back(span(of_phases, name, time, duration));
    time += duration;
  }
}

void add_generations(json::array& events, const JobView& view) {
  for (std::size_t i = 0; i < view.generations.size(); ++i) {
    const auto& generation = view.generations[i];
    const auto begin = generation.proposed;
    const auto end = i + 1 < view.generations.size() ? view.generations[i + 1].proposed : view.now;
    auto round = span(of_rounds, fmt::format("generation {}", generation.generation), begin, end - begin);
    round["args"] = {{"reason", generation.reason}, {"world_size", generation.world_size}};
    events.push_back(std::move(round));
    add_phases(events, generation);
  }
}

}  // namespace

std::string trace_json(const JobView& view) {
  json::array events{named(of_rounds, "generations"), named(of_phases, "recoveries"), named(of_events, "events")};
  add_generations(events, view);
  for (const auto& event : view.events)
    events.push_back(json::object{{"ph", "i"},
                                  {"s", "p"},
                                  {"pid", 1},
                                  {"tid", static_cast<int>(of_events)},
                                  {"name", event.kind},
                                  {"ts", microseconds(event.time)},
                                  {"args", {{"text", event.text}, {"step", event.step}}}});
  for (const auto& point : view.points) {
    if (std::isfinite(point.loss)) events.push_back(counter("loss", point.time, point.loss));
    if (std::isfinite(point.samples_per_s)) events.push_back(counter("samples/s", point.time, point.samples_per_s));
  }
  return valid_json(json::serialize(json::object{{"traceEvents", std::move(events)}}));
}

}  // namespace ddprun::dashboard
