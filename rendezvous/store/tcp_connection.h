#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "common/bytes.h"
#include "common/deadline.h"
#include "common/unique_fd.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/store/tcp_socket.h"
#include "rendezvous/trust/tls_channel.h"

namespace ddprun::rendezvous {

// The client side of one connection: sends requests and reads the fields of their replies.
// Ownership: owns the socket. Threads: one caller at a time, except for wake().
// Errors: a cancelled wait throws WaitTimeout and leaves the connection usable; any Error leaves it unusable.
class TcpConnection {
 public:
  // The deadline of a wait has passed, and the server has confirmed the cancellation.
  struct WaitTimeout {};

  // channel encrypts the connection; null means clear text. grace is the time that the server may take to reply once a
  // deadline has passed. A stop request shuts the socket down.
  TcpConnection(UniqueFd fd, std::unique_ptr<TlsChannel> channel, std::chrono::milliseconds grace,
                const std::stop_token& stop);

  // Returns once the kernel has accepted all bytes.
  void send(const Request& request, Deadline deadline);
  // Does the same with requests that are encoded already.
  void send_encoded(std::string_view requests, Deadline deadline) { send_bytes(requests, deadline); }
  // Sends VALIDATE and PING. Returns whether the server has ddprun's extensions.
  bool handshake(Deadline deadline);

  template <class T>
  T read_number(Deadline deadline) {
    return get_le<T>(read(sizeof(T), deadline));
  }
  std::string read_vec(Deadline deadline);
  // Reads the status byte of a request without another result. Throws Errc::protocol for any other value than 0.
  void read_done(Deadline deadline);

  // Returns the deadline, but at least grace from now, for requests that complete or cancel a wait.
  Deadline at_least_grace(Deadline deadline) const;

  // Reads the reply to a WAIT, WAIT_GET or BARRIER just sent. Cancels the wait at the deadline; a reply that crosses
  // the cancellation on the wire counts as success. finish reads the rest of the reply, the value of a WAIT_GET.
  template <class Finish>
  auto await(Deadline deadline, Finish finish, bool wakeable = false) {
    const auto end = end_of_wait(deadline, wakeable);
    auto result = finish(end.reply_deadline);
    if (end.cancelled) read_cancelled(end.reply_deadline);
    return result;
  }
  void await(Deadline deadline, bool wakeable = false);

  // Cancels the wakeable wait in progress, or the next one. Any thread may call it.
  void wake();

 private:
  // The state of the wakeable wait.
  enum class Wait { none, sent, cancelled };
  // The end of a successful wait. cancelled: CANCEL_WAIT was sent too, and its reply has to be read.
  struct End {
    bool cancelled;
    Deadline reply_deadline;
  };

  End end_of_wait(Deadline deadline, bool wakeable);
  Wait begin_wait();
  bool finish_wait();
  std::optional<std::uint8_t> status_by(Deadline deadline);
  void read_cancelled(Deadline deadline);
  std::string read(std::size_t size, Deadline deadline);
  void send_bytes(std::string_view bytes, Deadline deadline);
  std::size_t receive(char* target, std::size_t size, Deadline deadline);

  UniqueFd fd_;
  const std::chrono::milliseconds grace_;
  const ShutdownOnStop shutdown_on_stop_;
  std::unique_ptr<TlsChannel> channel_;
  std::mutex channel_mutex_;  // guards channel_, which wake() uses on another thread
  std::string text_;          // decrypted, of which text_begin_ bytes have been read
  std::size_t text_begin_ = 0;
  std::mutex wait_mutex_;  // guards wait_, and the sending of CANCEL_WAIT by wake()
  Wait wait_ = Wait::none;
  std::string out_;
  char buffer_[4096];
  std::size_t read_begin_ = 0;  // the start of the bytes in buffer_ after the last reply
  std::size_t read_end_ = 0;
};

}  // namespace ddprun::rendezvous
