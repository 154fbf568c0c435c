#include "worker/comm/backends/mpi/mpi_notices.h"

#include <stdexcept>
#include <string>

#include "worker/comm/backends/mpi/message_tags.h"

namespace ddprun::comm {

MpiNotices::MpiNotices(const MpiGroupContext& context)
    : context_(context), incoming_(std::make_unique<std::uint64_t>(0)) {
  const std::lock_guard lock(context_.library.mutex());
  context_.library.check(
      context_.library.calls().call<&MpiFunctions::receive>(context_.communicator, incoming_.get(), sizeof(*incoming_),
                                                            -1, MessageTags::notice, &listening_),
      "a receive over MPI");
}

MpiNotices::~MpiNotices() {
  const std::lock_guard lock(context_.library.mutex());
  if (!context_.interrupted && context_.library.calls().call<&MpiFunctions::cancel_receive>(&listening_) == 0) return;
  [[maybe_unused]] auto* const left_to_mpi = incoming_.release();
  context_.library.abandon();
}

void MpiNotices::expect_none() {
  // A test may progress other messages only.
  for (int attempt = 0; attempt < 2 && from_ < 0; ++attempt) {
    bool received = false;
    int bytes = 0, source = -1;
    context_.library.check(
        context_.library.calls().call<&MpiFunctions::test_receive>(&listening_, &received, &source, &bytes),
        "a receive over MPI");
    if (received) from_ = source;
  }
  if (from_ < 0) return;
  throw std::runtime_error("rank " + std::to_string(from_) + " has ended its operations");
}

void MpiNotices::send() noexcept {
  static constexpr std::uint64_t notice = 0;
  const std::lock_guard lock(context_.library.mutex());
  for (int rank = 0; rank < context_.rank_info.size; ++rank) {
    MpiFunctions::Request request{};
    if (rank != context_.rank_info.rank)
      context_.library.calls().call<&MpiFunctions::send>(context_.communicator, &notice, sizeof(notice), rank,
                                                         MessageTags::notice, &request);
  }
  context_.library.abandon();
}

}  // namespace ddprun::comm
