#include "worker/parallel/forms/pipeline/group_channel.h"

#include <algorithm>
#include <array>

#include "common/error.h"
#include "worker/parallel/group_tensors.h"

namespace ddprun::pipeline {
namespace {

constexpr std::size_t header_length = 2 + Shape::max_rank;

enum class Kind { layout, activation, gradient };

// Tags are the same in each step: messages of a tag arrive in order.
int tag_of(const Message& message, Kind kind) {
  constexpr int kinds = 3, stages = 4096;
  return (message.micro_batch * stages + message.stage) * kinds + static_cast<int>(kind);
}

int tag_of(const Message& message) {
  return tag_of(message, message.is_gradient ? Kind::gradient : Kind::activation);
}

}  // namespace

GroupChannel::~GroupChannel() {
  // The memory of operations is in use until they have ended, even with an error.
  const auto settle = [](const Pending& pending) {
    try {
      pending.work->wait();
    } catch (const Error&) {
      // The user of the channel has seen the error.
    }
  };
  if (!sends_.empty() || !expected_.empty()) group_.abort("a pipeline ended within a step");
  for (const Pending& pending : sends_) settle(pending);
  for (const auto& [tag, pending] : expected_) settle(pending);
}

void GroupChannel::send(int rank, const Message& message, const Tensor& value) {
  drop_sent();
  Tensor dense = value.contiguous();
  if (!message.is_gradient) send_layout(rank, message, {dense.shape(), dense.dtype()});
  bytes_sent_ += dense.bytes();
  WorkPtr work = group_.send(span_of_tensor(dense), rank, tag_of(message));
  sends_.push_back({std::move(dense), std::move(work)});
}

void GroupChannel::send_layout(int rank, const Message& message, const Layout& layout) {
  const auto [known, is_new] = sent_layouts_.try_emplace({message.stage, message.samples}, layout);
  if (!is_new) {
    if (known->second == layout) return;
    throw make_error(
        Errc::mismatch,
        "stage {} gave a {} tensor of shape {} for micro-batch {} of {} samples, and {} of shape {} before",
        message.stage - 1, name_of(layout.dtype), to_string(layout.shape), message.micro_batch, message.samples,
        name_of(known->second.dtype), to_string(known->second.shape));
  }
  std::vector<std::int64_t> header(header_length);
  header[0] = static_cast<std::int64_t>(layout.dtype);
  header[1] = std::ssize(layout.shape);
  std::ranges::copy(layout.shape, header.begin() + 2);
  Tensor memory = Tensor::from(header, {static_cast<std::int64_t>(header.size())});
  bytes_sent_ += memory.bytes();
  WorkPtr work = group_.send(span_of_tensor(memory), rank, tag_of(message, Kind::layout));
  sends_.push_back({std::move(memory), std::move(work)});
}

GroupChannel::Layout GroupChannel::receive_layout(int rank, const Message& message) {
  if (message.is_gradient) return {message.like.shape(), message.like.dtype()};
  const Size size{message.stage, message.samples};
  if (const auto known = received_layouts_.find(size); known != received_layouts_.end()) return known->second;
  std::array<std::int64_t, header_length> header{};
  wait(group_.recv({header.data(), header.size(), DType::int64}, rank, tag_of(message, Kind::layout)));
  std::vector<std::int64_t> extents(header.begin() + 2, header.begin() + 2 + header[1]);
  return received_layouts_[size] = {Shape(extents), static_cast<DType>(header[0])};
}

GroupChannel::Pending GroupChannel::start_receive(int rank, const Message& message, const Layout& layout) {
  Tensor memory = Tensor::empty(layout.shape, layout.dtype);
  WorkPtr work = group_.recv(span_of_tensor(memory), rank, tag_of(message));
  return {std::move(memory), std::move(work)};
}

void GroupChannel::expect(int rank, const Message& message) {
  if (!message.is_gradient && !received_layouts_.contains({message.stage, message.samples})) return;
  expected_.emplace_back(tag_of(message), start_receive(rank, message, receive_layout(rank, message)));
}

Tensor GroupChannel::receive(int rank, const Message& message) {
  const int tag = tag_of(message);
  const auto is_it = [tag](const auto& each) { return each.first == tag; };
  if (std::ranges::none_of(expected_, is_it))
    expected_.emplace_back(tag, start_receive(rank, message, receive_layout(rank, message)));
  const auto own = std::ranges::find_if(expected_, is_it);
  wait(own->second.work);
  Tensor value = std::move(own->second.memory);
  expected_.erase(own);
  return value;
}

void GroupChannel::drop_sent() {
  std::erase_if(sends_, [](const Pending& pending) { return pending.work->done() && !pending.work->error(); });
}

void GroupChannel::finish() {
  for (const Pending& pending : sends_) wait(pending.work);
  sends_.clear();
}

void GroupChannel::wait(const WorkPtr& work) {
  const auto start = std::chrono::steady_clock::now();
  work->wait();
  waited_ += std::chrono::steady_clock::now() - start;
}

}  // namespace ddprun::pipeline
