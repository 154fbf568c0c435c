#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

// Values of options that are lists. option is the option's name, for the error message. All throw Errc::usage.

// "0,2,11"; an empty text is an empty set.
std::set<int> parse_local_ranks(std::string_view text, std::string_view option);

// Texts separated by commas; two commas in a row mean one comma in a text. Empty texts are dropped.
std::vector<std::string> parse_texts(std::string_view text);

// "SIGTERM,SIGUSR1"; spaces around a name are allowed. Refused with the reason: signals that cannot be caught, signals
// that report a fault of this process, and SIGCHLD, which reports the exit of workers to the launcher.
std::vector<int> parse_signals(std::string_view text, std::string_view option);

// "SIGUSR1", "USR1" or "10": any signal.
int parse_signal(std::string_view text, std::string_view option);

}  // namespace ddprun
