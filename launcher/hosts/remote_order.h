#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

// What passes between the ddprun that a user started with --hosts and the agents that it starts on them: an order and
// signals in the agent's standard input, the agent's words among its standard output.
namespace ddprun {

// What an agent is to do: the user's own command line, in the user's folder, with what differs from host to host.
struct RemoteOrder {
  std::string directory;
  std::vector<std::string> environment;                      // "NAME=value", added to the host's own
  std::vector<std::string> arguments;                        // as typed, without the program
  std::vector<std::pair<std::string, std::string>> options;  // name and value, stronger than anything typed
};

// "<bytes>\n" and as many bytes: counts and texts, each with a zero behind it.
std::string encode(const RemoteOrder& order);
// Of what follows the first line. Throws Errc::protocol.
RemoteOrder decode_order(std::string_view body);

// Behind the order each byte is the number of a signal that the agent takes as its own. The end of the stream means
// that nobody waits for the agent any more.

// A word of the agent, to be written into its standard output. The token, long and random, tells it from what workers
// write.
//   here VERSION CLIENT SERVER   ddprun runs; the ends of the ssh connection ('-' without one)
//   meeting ENDPOINT             where the first host's agent serves the rendezvous
//   summary TEXT                 of the job's failure, as one_line() has it
//   error_file TEXT              of the root cause, where it is a worker of this host, for a scheduler
//   exit CODE                    the last one
std::string remote_word(std::string_view token, std::string_view text);

// Newlines made into a byte that people do not write, and back.
std::string one_line(std::string text);
std::string several_lines(std::string text);

// Takes the words out of a stream.
class RemoteWords {
 public:
  explicit RemoteWords(const std::string& token) : mark_(begin(token)) {}

  // Appends to output what is no word, and to words those that have become whole.
  void feed(std::string_view bytes, std::string& output, std::vector<std::string>& words);
  // The stream has ended: what was held back.
  void flush(std::string& output);

 private:
  friend std::string remote_word(std::string_view token, std::string_view text);
  static std::string begin(std::string_view token);

  std::string mark_;
  std::string held_;  // may be the beginning of a word
};

}  // namespace ddprun
