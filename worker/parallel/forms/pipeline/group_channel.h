#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/parallel/forms/pipeline/channel.h"

namespace ddprun::pipeline {

// Messages between the ranks of a process group. The sender of activations sends their shape with the first message of
// each size of micro-batch; later messages must have the same shape.
//
// Ownership: the group outlives it. Threads: one at a time. Errors: those of the group, such as Errc::peer_lost. The
// destructor aborts the group if a message is still under way.
class GroupChannel final : public Channel {
 public:
  explicit GroupChannel(ProcessGroup& group) : group_(group) {}
  ~GroupChannel() override;
  GroupChannel(const GroupChannel&) = delete;
  GroupChannel& operator=(const GroupChannel&) = delete;

  void send(int rank, const Message& message, const Tensor& value) override;
  void expect(int rank, const Message& message) override;
  Tensor receive(int rank, const Message& message) override;
  void finish() override;

  // Says what a stage receives for micro-batches of so many samples, in place of the message that says it.
  void assume(int stage, std::int64_t samples, const Tensor& like) {
    received_layouts_[{stage, samples}] = {like.shape(), like.dtype()};
  }

  std::uint64_t bytes_sent() const { return bytes_sent_; }
  // Total time that receive() and finish() have waited.
  std::chrono::nanoseconds waited() const { return waited_; }

 private:
  struct Layout {
    Shape shape;
    DType dtype = DType::float32;
    bool operator==(const Layout&) const = default;
  };
  struct Pending {
    Tensor memory;
    WorkPtr work;
  };
  using Size = std::pair<int, std::int64_t>;  // receiving stage, samples

  void send_layout(int rank, const Message& message, const Layout& layout);
  Layout receive_layout(int rank, const Message& message);
  Pending start_receive(int rank, const Message& message, const Layout& layout);
  void drop_sent();
  void wait(const WorkPtr& work);

  ProcessGroup& group_;
  std::map<Size, Layout> sent_layouts_, received_layouts_;
  std::vector<Pending> sends_;
  std::vector<std::pair<int, Pending>> expected_;  // by tag
  std::uint64_t bytes_sent_ = 0;
  std::chrono::nanoseconds waited_{};
};

}  // namespace ddprun::pipeline
