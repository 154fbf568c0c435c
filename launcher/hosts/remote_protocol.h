#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

// The protocol between the ddprun that a user started with --hosts (the starter) and the agents that it starts on the
// hosts. The starter writes a launch request to the agent's standard input; every byte after it is the number of a
// signal that the agent raises in itself, and the end of the stream means that the starter is gone. The agent writes
// messages into its standard output, between the output of its workers.
namespace ddprun {

// The launch of an agent: the user's own command line, in the user's working directory, with this host's options.
struct LaunchRequest {
  std::string directory;
  std::vector<std::string> environment;                      // "NAME=value", added to the host's own
  std::vector<std::string> arguments;                        // as typed, without the program
  std::vector<std::pair<std::string, std::string>> options;  // name and value; they override the arguments
  std::string token;                                         // the job's token, a SecretText; the caller clears it
};

// The text is "<bytes>\n", then that many bytes: counts and texts, each followed by a zero byte. The caller clears it.
std::string encode(const LaunchRequest& request);
// Takes the bytes after the first line. Throws Errc::protocol.
LaunchRequest decode_request(std::string_view body);

// A line from the agent. The id of the connection, long and random, distinguishes it from the output of workers.
//   here VERSION CLIENT SERVER   ddprun runs; both ends of the ssh connection ('-' without one)
//   rendezvous ENDPOINT          of the server that this agent runs
//   summary TEXT                 of the job's failure, encoded by join_lines()
//   error_file TEXT              of the root cause if it is a worker of this host, encoded by join_lines()
//   exit CODE                    the last message
std::string encode_message(std::string_view connection_id, std::string_view text);

// The first replaces newlines by a control character, the second restores them.
std::string join_lines(std::string text);
std::string split_lines(std::string text);

// Separates the messages from the rest of a stream. Not thread-safe.
class MessageParser {
 public:
  explicit MessageParser(const std::string& connection_id) : mark_(begin(connection_id)) {}

  // Appends bytes that belong to no message to output, and each complete message to messages.
  void feed(std::string_view bytes, std::string& output, std::vector<std::string>& messages);
  // The stream has ended: appends what may have been the start of a message.
  void flush(std::string& output);

 private:
  friend std::string encode_message(std::string_view connection_id, std::string_view text);
  static std::string begin(std::string_view connection_id);

  std::string mark_;
  std::string held_;  // may be the start of a message
};

}  // namespace ddprun
