#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

// Options that are lists. option: its name, for the error. All throw Errc::usage.

// "0,2,11". Empty text: an empty set.
std::set<int> parse_local_ranks(std::string_view text, std::string_view option);

// Texts between commas; two commas in a row are one that belongs to the text. Empty texts are left out.
std::vector<std::string> parse_texts(std::string_view text);

// "SIGTERM,SIGUSR1", spaces around a name allowed. Refused with the reason: a signal that no process can catch, one
// that tells of a fault in this process, and SIGCHLD, by which the launcher hears of its workers' ends.
std::vector<int> parse_signals(std::string_view text, std::string_view option);

}  // namespace ddprun
