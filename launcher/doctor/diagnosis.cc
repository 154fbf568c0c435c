#include "launcher/doctor/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/host_port.h"

namespace ddprun::doctor {
namespace {

constexpr double mib = 1024.0 * 1024.0;
constexpr double gib = 1024.0 * mib;
// A shared-memory group of a few ranks takes less; a data loader's queues take as much.
constexpr double needed_shared_memory = 64 * mib;
// An agent's share with some hundred workers.
constexpr std::uint64_t needed_descriptors = 1024;
// The hosts' clocks decide which failure came first.
constexpr std::chrono::milliseconds largest_clock_difference{500};
// A link is slow if it has less than this share of the median's rate.
constexpr double slow_share = 0.5;
constexpr std::size_t most_links_shown = 28;  // all pairs of 8 hosts

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

double slower_direction(const LinkFigures& figures) {
  return std::min(figures.sent_bytes_per_s, figures.received_bytes_per_s);
}

// Returns the middle one, or the lower of two.
double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string rate_text(double bytes_per_s) {
  const double bits = bytes_per_s * 8;
  if (bits >= 1e9) return fmt::format("{:.1f} Gbit/s", bits / 1e9);
  return fmt::format("{:.{}f} Mbit/s", bits / 1e6, bits >= 1e8 ? 0 : 1);
}

class Judge {
 public:
  explicit Judge(const Measurements& measurements) : measurements_(measurements) {}

  Diagnosis judge() {
    for (std::size_t i = 0; i < measurements_.hosts.size(); ++i) judge_host(i);
    judge_clocks();
    judge_links();
    leave_out_broken_links();
    for (std::size_t i = 0; i < measurements_.hosts.size(); ++i)
      if (!failed_.contains(i)) result_.passed.push_back(i);
    return std::move(result_);
  }

 private:
  template <class... Args>
  void problem(std::size_t host, fmt::format_string<Args...> format, Args&&... args) {
    failed_.insert(host);
    result_.problems.push_back(name(host) + ": " + fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void note(std::size_t host, fmt::format_string<Args...> format, Args&&... args) {
    result_.notes.push_back(name(host) + ": " + fmt::format(format, std::forward<Args>(args)...));
  }
  const std::string& name(std::size_t host) const { return measurements_.hosts[host].host; }

  void judge_host(std::size_t i) {
    const auto& host = measurements_.hosts[i];
    if (!host.facts) return problem(i, "{}", host.error);
    const auto& facts = *host.facts;
    if (facts.version != measurements_.version)
      problem(i, "it has ddprun {}, and this is {}", facts.version, measurements_.version);
    judge_name(i, facts);
    if (static_cast<double>(facts.shared_memory_free) < needed_shared_memory)
      problem(i,
              "/dev/shm has {:.0f} of {:.0f} MiB left, and ranks of one host exchange through it: remove files there",
              static_cast<double>(facts.shared_memory_free) / mib, static_cast<double>(facts.shared_memory) / mib);
    if (facts.descriptors < needed_descriptors)
      problem(i, "the hard limit of open files is {}: raise it to {} or more (ulimit -Hn)", facts.descriptors,
              needed_descriptors);
    if (!facts.rendezvous_port_free)
      note(i, "port 29400 is in use: a rendezvous on this host needs another one (--rdzv_endpoint=HOST:PORT)");
  }

  // Gloo and PyTorch resolve a host's own name to find the interface to use.
  void judge_name(std::size_t i, const HostFacts& facts) {
    const auto& found = facts.name_addresses;
    if (found.empty())
      return problem(i, "its own name, {}, has no address: add it to /etc/hosts or the name server", facts.name);
    const auto own = [&](const std::string& address) {
      return std::find(facts.addresses.begin(), facts.addresses.end(), address) != facts.addresses.end();
    };
    if (std::any_of(found.begin(), found.end(), own)) return;
    if (std::all_of(found.begin(), found.end(), [](const auto& address) { return is_loopback_address(address); })) {
      if (measurements_.hosts.size() > 1)
        note(i,
             "its own name, {}, means {} there, which no other host reaches: programs that announce that name need a "
             "choice of interface (GLOO_SOCKET_IFNAME, --local_addr)",
             facts.name, fmt::join(found, " "));
      return;
    }
    problem(i, "its own name, {}, means {}, which is no address of this host ({})", facts.name, fmt::join(found, " "),
            fmt::join(facts.addresses, " "));
  }

  // Differences are known for each link: those of the first host that has any are compared.
  void judge_clocks() {
    std::map<std::size_t, double> ahead{};  // seconds by which each host's clock is ahead of the first one's
    for (std::size_t first = 0; first < measurements_.hosts.size() && ahead.size() < 2; ++first) {
      ahead = {{first, 0}};
      for (const auto& link : measurements_.links) {
        if (!link.figures) continue;
        const double difference = seconds(link.figures->clock_ahead);
        if (link.from == first) ahead[link.to] = difference;
        if (link.to == first) ahead[link.from] = -difference;
      }
    }
    std::vector<double> values;
    for (const auto& [host, value] : ahead) values.push_back(value);
    const double middle = median(values);
    for (const auto& [host, value] : ahead)
      if (std::abs(value - middle) > seconds(largest_clock_difference))
        problem(host,
                "its clock is {:.1f} s {} that of the others: which failure came first is decided by it (use NTP)",
                std::abs(value - middle), value > middle ? "ahead of" : "behind");
  }

  void judge_links() {
    std::vector<double> rates;
    for (const auto& link : measurements_.links)
      if (link.figures) rates.push_back(slower_direction(*link.figures));
    const double usual = median(rates);
    for (const auto& link : measurements_.links) {
      const auto pair = fmt::format("{} to {}", name(link.from), name(link.to));
      if (!link.figures)
        result_.problems.push_back(fmt::format("{}: {}", pair, link.error));
      else if (const double rate = slower_direction(*link.figures); rates.size() > 2 && rate < usual * slow_share)
        result_.notes.push_back(fmt::format("{}: {}, where the usual is {}: a job is as fast as its slowest link", pair,
                                            rate_text(rate), rate_text(usual)));
    }
  }

  // The host with most broken links goes first, until those that stay reach each other.
  void leave_out_broken_links() {
    for (;;) {
      std::map<std::size_t, int> broken;
      for (const auto& link : measurements_.links)
        if (!link.figures && !failed_.contains(link.from) && !failed_.contains(link.to)) {
          ++broken[link.from];
          ++broken[link.to];
        }
      if (broken.empty()) return;
      // Among equals the last one in the list is left out, since the first host usually serves the rendezvous.
      const auto worst = std::max_element(broken.rbegin(), broken.rend(),
                                          [](const auto& a, const auto& b) { return a.second < b.second; });
      failed_.insert(worst->first);
    }
  }

  const Measurements& measurements_;
  Diagnosis result_;
  std::set<std::size_t> failed_;
};

std::string host_line(const HostResult& host, int width) {
  if (!host.facts) return fmt::format("{:<{}}  no answer\n", host.host, width);
  const auto& f = *host.facts;
  return fmt::format("{:<{}}  {:>4} CPUs  {:>7.1f} GiB  /dev/shm {:>6.1f} GiB free  {:>3} GPUs  {:<16}  {}\n",
                     host.host, width, f.cpus, static_cast<double>(f.memory) / gib,
                     static_cast<double>(f.shared_memory_free) / gib, f.gpus,
                     f.addresses.empty() ? "no address" : f.addresses.front(), fmt::join(f.libraries, ", "));
}

std::string link_line(const Measurements& measurements, const LinkResult& link, int width) {
  const auto& from = measurements.hosts[link.from].host;
  const auto& to = measurements.hosts[link.to].host;
  if (!link.figures) return fmt::format("{:<{}}  {:<{}}  broken\n", from, width, to, width);
  const auto& f = *link.figures;
  return fmt::format("{:<{}}  {:<{}}  {:>9.1f} us  {:>14} there  {:>14} back\n", from, width, to, width,
                     seconds(f.round_trip) * 1e6, rate_text(f.sent_bytes_per_s), rate_text(f.received_bytes_per_s));
}

// Sorts links by rate, the slowest first; broken ones before them.
std::vector<LinkResult> links_to_show(std::vector<LinkResult> links) {
  if (links.size() <= most_links_shown) return links;
  const auto rate = [](const LinkResult& link) { return link.figures ? slower_direction(*link.figures) : -1; };
  std::stable_sort(links.begin(), links.end(), [&](const auto& a, const auto& b) { return rate(a) < rate(b); });
  links.resize(most_links_shown);
  return links;
}

}  // namespace

Diagnosis diagnose(const Measurements& measurements) {
  return Judge(measurements).judge();
}

std::string report_text(const Measurements& measurements, const Diagnosis& diagnosis) {
  std::size_t longest = 0;
  for (const auto& host : measurements.hosts) longest = std::max(longest, host.host.size());
  const int width = static_cast<int>(longest);
  std::string text;
  for (const auto& host : measurements.hosts) text += host_line(host, width);
  const auto links = links_to_show(measurements.links);
  if (links.size() < measurements.links.size())
    text += fmt::format("the {} slowest of {} links:\n", links.size(), measurements.links.size());
  for (const auto& link : links) text += link_line(measurements, link, width);
  for (const auto& line : diagnosis.notes) text += "note: " + line + "\n";
  for (const auto& line : diagnosis.problems) text += "problem: " + line + "\n";
  return text + fmt::format("{} of {} host{} passed\n", diagnosis.passed.size(), measurements.hosts.size(),
                            measurements.hosts.size() == 1 ? "" : "s");
}

std::string hostfile_text(const Measurements& measurements, const Diagnosis& diagnosis) {
  std::string text;
  for (const auto i : diagnosis.passed) {
    const auto& host = measurements.hosts[i];
    text += fmt::format("{} slots={}\n", host.host, host.facts->gpus > 0 ? host.facts->gpus : host.facts->cpus);
  }
  return text;
}

// In the circle method host 0 stays; the others rotate.
std::vector<std::vector<Pair>> rounds_of_pairs(std::size_t hosts) {
  if (hosts < 2) return {};
  const std::size_t seats = hosts + hosts % 2;  // with an odd number one host of each round has no partner
  std::vector<std::vector<Pair>> rounds(seats - 1);
  for (std::size_t round = 0; round < rounds.size(); ++round) {
    const auto at = [&](std::size_t seat) { return seat == 0 ? 0 : 1 + (seat - 1 + round) % (seats - 1); };
    for (std::size_t i = 0; i < seats / 2; ++i) {
      const auto a = at(i), b = at(seats - 1 - i);
      if (std::max(a, b) < hosts) rounds[round].push_back({std::min(a, b), std::max(a, b)});
    }
  }
  return rounds;
}

}  // namespace ddprun::doctor
