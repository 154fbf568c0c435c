#include "launcher/workers/watchdog_timers.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>

#include "common/error.h"

namespace ddprun {
namespace {

namespace json = boost::json;

double number_of(const json::object& request, const char* name) {
  const auto* value = request.if_contains(name);
  if (!value || !value->is_number()) throw make_error(Errc::protocol, "a timer request has no number {}", name);
  return value->to_number<double>();
}

int signal_of(const json::object& request) {
  const double number = number_of(request, "signal");
  if (!(number <= 64)) throw make_error(Errc::protocol, "a timer request names signal {}", number);
  return number > 0 ? static_cast<int>(number) : 0;
}

}  // namespace

void WatchdogTimers::request(std::string_view line) {
  boost::system::error_code failure;
  const auto document = json::parse(json::string_view(line.data(), line.size()), failure);
  if (failure || !document.is_object()) throw make_error(Errc::protocol, "a timer request is no JSON object: {}", line);
  const auto& request = document.as_object();
  const auto* scope = request.if_contains("scope_id");
  if (!scope || !scope->is_string()) throw make_error(Errc::protocol, "a timer request has no string scope_id");
  const double pid = number_of(request, "pid");
  if (!(pid >= 1 && pid <= 4'194'304)) throw make_error(Errc::protocol, "a timer request names process {}", pid);
  const double expires = number_of(request, "expiration_time");
  const std::pair key{static_cast<pid_t>(pid), std::string(scope->as_string())};
  if (expires < 0) {
    timers_.erase(key);
  } else {
    timers_[key] = {.expires = expires, .signal_number = signal_of(request)};
  }
}

std::vector<ExpiredTimer> WatchdogTimers::expire(double now) {
  // The order is by process, then those with a signal first, then by time.
  std::set<std::tuple<pid_t, bool, double, std::string, int>> passed;
  for (const auto& [key, timer] : timers_)
    if (timer.expires <= now)
      passed.insert({key.first, timer.signal_number == 0, timer.expires, key.second, timer.signal_number});
  std::vector<ExpiredTimer> result;
  for (const auto& [pid, no_signal, expires, scope, signal_number] : passed)
    if (result.empty() || result.back().pid != pid) result.push_back({pid, scope, signal_number});
  for (const auto& timer : result)
    std::erase_if(timers_, [&](const auto& entry) { return entry.first.first == timer.pid; });
  return result;
}

std::optional<double> WatchdogTimers::next() const {
  const auto earliest = std::min_element(
      timers_.begin(), timers_.end(), [](const auto& a, const auto& b) { return a.second.expires < b.second.expires; });
  return earliest == timers_.end() ? std::nullopt : std::optional(earliest->second.expires);
}

}  // namespace ddprun
