#pragma once

#include <map>
#include <string_view>

namespace ddprun {

// A set of a worker's output streams.
struct Streams {
  bool out = false;
  bool err = false;
  friend bool operator==(const Streams&, const Streams&) = default;
};

// The value of --redirects and --tee: one digit for all local ranks, or RANK:DIGIT,... where ranks that are not named
// get 0. Digits: 0 none, 1 stdout, 2 stderr, 3 both.
//
// A value. Threads: const functions are thread-safe. Errors: parse() throws Errc::usage.
class StreamSpec {
 public:
  StreamSpec() = default;
  // option is the option's name for the error message, which shows the grammar.
  static StreamSpec parse(std::string_view text, std::string_view option);

  Streams of(int local_rank) const;
  // Returns whether any stream of any rank is selected.
  bool any() const;

 private:
  Streams all_;
  std::map<int, Streams> by_rank_;
};

}  // namespace ddprun
