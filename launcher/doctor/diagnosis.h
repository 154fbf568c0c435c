#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/doctor/host_facts.h"
#include "launcher/doctor/link_test.h"

// ddprun doctor judges its measurements here. Pure functions and values.
namespace ddprun::doctor {

struct HostResult {
  std::string host;                // as the user named it
  std::optional<HostFacts> facts;  // unset: it did not answer
  std::string error;               // the reason if facts is unset
};

struct LinkResult {
  std::size_t from = 0;  // hosts, by their position in the list; from has connected to to
  std::size_t to = 0;
  std::optional<LinkFigures> figures;  // nullopt: the test failed
  std::string error;                   // the reason if figures is nullopt
};

struct Measurements {
  std::string version;  // version of the ddprun that asks
  std::vector<HostResult> hosts;
  std::vector<LinkResult> links;
};

struct Diagnosis {
  std::vector<std::string> problems;  // one line each, with host or link, cause and remedy
  std::vector<std::string> notes;     // facts that may matter for some jobs
  std::vector<std::size_t> passed;    // the hosts that can be used together
};

Diagnosis diagnose(const Measurements& measurements);

// A table of hosts, one of links (the slowest ones of many), notes and problems, and how many hosts passed.
std::string report_text(const Measurements& measurements, const Diagnosis& diagnosis);

// The text of a hostfile with the hosts that passed, and the number of their GPUs or processors as slots.
std::string hostfile_text(const Measurements& measurements, const Diagnosis& diagnosis);

// All pairs of hosts in rounds in which each host is in one pair at most (a round-robin tournament by the circle
// method), so that no test disturbs another.
using Pair = std::pair<std::size_t, std::size_t>;
std::vector<std::vector<Pair>> rounds_of_pairs(std::size_t hosts);

}  // namespace ddprun::doctor
