#include "launcher/hosts/host_entries.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "common/error.h"
#include "rendezvous/membership/session_protocol.h"

namespace ddprun {
namespace {

int parse_slots(std::string_view digits, std::string_view whole) {
  int value = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (status != std::errc{} || end != digits.data() + digits.size() || value < 1 || value > SessionLimits::workers)
    throw make_error(Errc::usage, "'{}': expected a number of workers from 1 to {}, not '{}'", whole,
                     SessionLimits::workers, digits);
  return value;
}

// ssh would take a leading dash for an option, and white space for the end of the name.
void check_name(std::string_view name, std::string_view whole) {
  if (name.empty() || name.front() == '-' || name.find_first_of(" \t'\"") != std::string_view::npos)
    throw make_error(Errc::usage, "'{}': expected HOST[:SLOTS]", whole);
}

// "a", "a:4", "[fd00::7]:4", "fd00::7"
HostEntry parse_entry(std::string_view text) {
  HostEntry host;
  std::string_view rest;
  if (text.starts_with('[')) {
    const auto close = text.find(']');
    if (close == std::string_view::npos) throw make_error(Errc::usage, "'{}': the bracket is not closed", text);
    host.name = text.substr(1, close - 1);
    rest = text.substr(close + 1);
  } else {
    const auto colon = text.find(':');
    const bool v6 = colon != std::string_view::npos && text.find(':', colon + 1) != std::string_view::npos;
    host.name = text.substr(0, v6 ? std::string_view::npos : colon);
    if (!v6 && colon != std::string_view::npos) rest = text.substr(colon);
  }
  check_name(host.name, text);
  if (rest.empty()) return host;
  if (rest.front() != ':') throw make_error(Errc::usage, "'{}': expected HOST[:SLOTS]", text);
  host.slots = parse_slots(rest.substr(1), text);
  return host;
}

void add(std::vector<HostEntry>& hosts, HostEntry host) {
  const auto same = [&](const HostEntry& other) { return other.name == host.name; };
  const auto found = std::find_if(hosts.begin(), hosts.end(), same);
  if (found == hosts.end())
    hosts.push_back(std::move(host));
  else
    found->slots = found->slots.value_or(1) + host.slots.value_or(1);
}

// "a slots=4". Open MPI's max_slots is accepted and ignored.
HostEntry parse_line(const std::string& line) {
  std::istringstream words(line);
  std::string word;
  words >> word;
  auto host = parse_entry(word);
  while (words >> word) {
    const auto equals = word.find('=');
    const auto key = word.substr(0, equals);
    if (equals == std::string::npos || (key != "slots" && key != "max_slots" && key != "max-slots"))
      throw make_error(Errc::usage, "'{}': expected slots=NUMBER after the host", word);
    const int slots = parse_slots(std::string_view(word).substr(equals + 1), word);
    if (key == "slots") host.slots = slots;
  }
  return host;
}

}  // namespace

std::vector<HostEntry> parse_hosts(std::string_view text) {
  std::vector<HostEntry> hosts;
  for (auto rest = text;;) {
    const auto comma = rest.find(',');
    try {
      add(hosts, parse_entry(rest.substr(0, comma)));
    } catch (const Error& e) {
      throw make_error(Errc::usage, "--hosts: {}", e.what());
    }
    if (comma == std::string_view::npos) return hosts;
    rest.remove_prefix(comma + 1);
  }
}

std::vector<HostEntry> parse_hostfile(std::string_view text, std::string_view file) {
  std::vector<HostEntry> hosts;
  std::istringstream stream{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    line.resize(std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      add(hosts, parse_line(line));
    } catch (const Error& e) {
      throw make_error(Errc::usage, "{}:{}: {}", file, number, e.what());
    }
  }
  if (hosts.empty()) throw make_error(Errc::usage, "{}: names no hosts", file);
  return hosts;
}

bool is_this_machine(const HostEntry& host, std::string_view own_name) {
  return host.name == "localhost" || host.name == "127.0.0.1" || host.name == "::1" || host.name == own_name;
}

}  // namespace ddprun
