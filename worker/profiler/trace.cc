#include "worker/profiler/trace.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ddprun::profiler {
namespace {

const char* category(Kind kind) {
  switch (kind) {
    case Kind::phase:
      return "phase";
    case Kind::forward:
      return "forward";
    case Kind::backward:
      return "backward";
    case Kind::communication:
      return "communication";
  }
  return "";
}

std::string quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      quoted += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      quoted += c;
  }
  return quoted + '"';
}

// Microseconds with all digits of a nanosecond, so that what was nested stays so.
std::string microseconds(Time time) {
  return fmt::format("{}.{:03}", time.count() / 1000, time.count() % 1000);
}

std::string metadata(const char* kind, int rank, int track, const std::string& name) {
  return fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", kind, rank, track,
                     quoted(name));
}

std::string name_of_track(int track, bool has_device) {
  switch (track) {
    case host_track:
      return has_device ? "host" : "training";
    case compute_track:
      return "device: compute queue";
    case communication_track:
      return "device: communication queue";
    case copies_track:
      return "device: copies";
    default:
      return fmt::format("gradients, bucket {}", track - first_bucket_track);
  }
}

std::string element(const Event& event, int rank) {
  auto text = fmt::format(R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{"module":{})",
                          quoted(event.name), category(event.kind), rank, event.track, microseconds(event.start),
                          microseconds(event.duration), quoted(event.module));
  if (event.flops > 0) text += fmt::format(R"(,"flops":{:.0f})", event.flops);
  return text + "}}";
}

}  // namespace

std::string trace_events(int rank, const std::string& host, std::vector<Event> events) {
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.start != b.start ? a.start < b.start : a.duration > b.duration;
  });
  std::set<int> tracks{host_track};
  for (const Event& event : events) tracks.insert(event.track);
  const bool has_device = tracks.contains(compute_track);
  if (has_device) tracks.insert({communication_track, copies_track});
  std::vector<std::string> elements{metadata("process_name", rank, 0, fmt::format("rank {} on {}", rank, host))};
  for (const int track : tracks)
    elements.push_back(metadata("thread_name", rank, track, name_of_track(track, has_device)));
  for (const Event& event : events) elements.push_back(element(event, rank));
  return fmt::format("{}", fmt::join(elements, ",\n"));
}

std::string trace_file(const std::vector<std::string>& events_of_ranks) {
  return fmt::format("{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{}\n]}}\n", fmt::join(events_of_ranks, ",\n"));
}

}  // namespace ddprun::profiler
