#pragma once

#include <cstdint>
#include <memory>

#include "worker/comm/backends/mpi/mpi_collectives.h"

namespace ddprun::comm {

// Tells the peers that this rank has ended its operations with an error, and learns the same from them: MPI might
// finish their operations with what this rank has sent before.
//
// Threads: thread-safe. Errors: expect_none().
class MpiNotices {
 public:
  explicit MpiNotices(const MpiGroupContext& context);
  ~MpiNotices();
  MpiNotices(const MpiNotices&) = delete;
  MpiNotices& operator=(const MpiNotices&) = delete;

  // Throws once a peer has sent one. REQUIRES the library's mutex.
  void expect_none();
  void send() noexcept;

 private:
  const MpiGroupContext context_;
  std::unique_ptr<std::uint64_t> incoming_;  // where MPI receives
  MpiFunctions::Request listening_{};
  int from_ = -1;
};

}  // namespace ddprun::comm
