#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "worker/comm/backends/mpi/mpi_collectives.h"
#include "worker/comm/execution/transport.h"

namespace ddprun::comm {

// Sends and receives over a communicator. A send is a header, which has its tag, type and size, and data that does not
// fit into it; receives are matched with headers here, so that every tag is possible and both ends are compared.
//
// Threads: thread-safe. Errors: Errc::mismatch naming both ends; otherwise as MpiCollectives'.
class MpiTransfers {
 public:
  explicit MpiTransfers(const MpiGroupContext& context);
  ~MpiTransfers();
  MpiTransfers(const MpiTransfers&) = delete;
  MpiTransfers& operator=(const MpiTransfers&) = delete;

  std::unique_ptr<Transfer> start(const Operation& operation, Span memory);

  static constexpr std::size_t inline_bytes = 224;

 private:
  class Send;
  class Receive;
  struct Header {
    std::uint64_t number;  // its place among the messages to that rank
    Operation operation;
    std::byte data[inline_bytes];
  };
  struct Message {
    Header header;
    int source;
  };

  // All of these need the library's mutex.
  void listen();
  void progress();
  bool take_waiting(Receive& receive);
  bool matches(const Receive& receive, const Message& message) const;

  const MpiGroupContext context_;
  std::unique_ptr<Header> incoming_;  // used by MPI while it listens
  MpiFunctions::Request listening_{};
  std::list<Message> waiting_;       // without a receive yet
  std::list<Receive*> receives_;     // without a message yet, in the order of their calls
  std::vector<std::uint64_t> sent_;  // messages to each rank
};

}  // namespace ddprun::comm
