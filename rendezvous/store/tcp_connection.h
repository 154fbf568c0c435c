#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "ddprun/common/bytes.h"
#include "ddprun/common/deadline.h"
#include "ddprun/common/unique_fd.h"
#include "ddprun/rendezvous/store/protocol.h"
#include "ddprun/rendezvous/store/tcp_socket.h"

namespace ddprun::rendezvous {

// A client's requests and their replies over one socket, without their meaning. One caller at a time, but for wake().
// A wait that is cancelled throws WaitTimeout and leaves the connection in order; every other exception (Error) leaves
// it useless.
class TcpConnection {
 public:
  struct WaitTimeout {};

  // grace: how long the server may take to answer once a deadline has passed. A stop request breaks the connection.
  TcpConnection(UniqueFd fd, std::chrono::milliseconds grace, const std::stop_token& stop);

  void send(const Request& request, Deadline deadline);
  // The first words of every client. Returns whether the server knows our additions.
  bool greet(Deadline deadline);

  template <class T>
  T read_number(Deadline deadline) {
    return get_le<T>(read(sizeof(T), deadline));
  }
  std::string read_vec(Deadline deadline);
  void read_done(Deadline deadline);

  // For what follows once a wait has ended, or must be said although the deadline has passed.
  Deadline at_least_grace(Deadline deadline) const;

  // The answer to a WAIT, WAIT_GET or BARRIER just sent. After the deadline the wait is cancelled; an answer that
  // crosses the cancelling on the way counts: what was waited for is there. For WAIT_GET the value follows, which
  // finish reads.
  template <class Finish>
  auto await(Deadline deadline, Finish finish, bool wakeable = false) {
    const auto end = end_of_wait(deadline, wakeable);
    auto result = finish(end.rest);
    if (end.cancelled) read_cancelled(end.rest);
    return result;
  }
  void await(Deadline deadline, bool wakeable = false);

  // Cancels the wakeable wait under way, or the next one. From any thread.
  void wake();

 private:
  // Of a wakeable request that waits, as far as cancelling it goes.
  enum class Wait { none, sent, cancelled };
  // What was waited for is there. cancelled: the server has yet to answer that as well, until rest.
  struct End {
    bool cancelled;
    Deadline rest;
  };

  End end_of_wait(Deadline deadline, bool wakeable);
  Wait begin_wait();
  bool withdraw_wait();
  std::optional<std::uint8_t> status_by(Deadline deadline);
  void read_cancelled(Deadline deadline);
  std::string read(std::size_t size, Deadline deadline);

  UniqueFd fd_;
  const std::chrono::milliseconds grace_;
  const BreakOnStop break_on_stop_;
  std::mutex wait_mutex_;  // guards what follows, and the sending of a wake-up
  Wait wait_ = Wait::none;
  std::string out_;
  char buffer_[4096];
  std::size_t read_begin_ = 0;  // of what buffer_ holds beyond the last reply
  std::size_t read_end_ = 0;
};

}  // namespace ddprun::rendezvous
