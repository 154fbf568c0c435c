#pragma once

#include <charconv>
#include <string>

#include "common/environment.h"
#include "common/error.h"

// Functions that read the variables of a scheduler.
namespace ddprun {

// Returns empty text if the variable is not set.
inline std::string text_of(const Environment& environment, const char* name) {
  return environment.get(name).value_or("");
}

// Throws Errc::usage naming the variable unless it is a whole number at least min.
inline int number_of(const Environment& environment, const char* name, int min) {
  const auto digits = text_of(environment, name);
  int value = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || status != std::errc{} || end != digits.data() + digits.size() || value < min)
    throw make_error(Errc::usage, "{} = {}: expected a whole number at least {}", name, digits, min);
  return value;
}

// The rank of this node, below the number of nodes. Throws Errc::usage as number_of() does.
inline int node_rank_of(const Environment& environment, const char* rank_name, const char* nodes_name) {
  const int rank = number_of(environment, rank_name, 0);
  const int nodes = number_of(environment, nodes_name, 1);
  if (rank >= nodes)
    throw make_error(Errc::usage, "{} = {}: expected less than {} = {}", rank_name, rank, nodes_name, nodes);
  return rank;
}

// Returns the ClusterInfo that read() returns, or one with the message of the Error that read() throws.
template <class Read>
auto info_or_error(Read read) {
  try {
    return read();
  } catch (const Error& e) {
    decltype(read()) info;
    info.error = e.what();
    return info;
  }
}

}  // namespace ddprun
