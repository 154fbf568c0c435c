#include "worker/parallel/sharding/redistribute.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <utility>

#include "common/error.h"

namespace ddprun::sharding {
namespace {

constexpr int message_tag = 1;

using Transfers = std::span<const Transfer>;

// Transfers of a tensor and a step between this process and another one, sent as one message.
struct Message {
  std::vector<const Transfer*> transfers;  // in the same order at both ends
  std::vector<std::byte> bytes;
  WorkPtr work;
};
using Messages = std::map<int, Message>;  // by the other process

// Checks that the caller's memory is that of the layouts, as far as the transfers use it.
class PartCheck {
 public:
  explicit PartCheck(const Redistribution& redistribution) : tensors_(redistribution.tensors) {}

  void writes(const Transfer& transfer, const std::vector<Span>& to) const {
    check(transfer, transfer.write_offset, to);
  }
  void reads(const Transfer& transfer, const std::vector<ConstSpan>& from, const std::vector<Span>& to) const {
    if (transfer.file != absent) return;
    transfer.step > 0 ? check(transfer, transfer.read_offset, to) : check(transfer, transfer.read_offset, from);
  }

 private:
  template <class AnySpan>
  void check(const Transfer& transfer, std::int64_t offset, const std::vector<AnySpan>& parts) const {
    const TensorSpec& tensor = tensors_[transfer.tensor];
    if (parts.size() != tensors_.size())
      throw make_error(Errc::usage, "{} parts for {} tensors", parts.size(), tensors_.size());
    const AnySpan& part = parts[transfer.tensor];
    const auto needed = static_cast<std::size_t>(offset + transfer.range.count());
    if (part.count < needed || part.dtype != tensor.dtype)
      throw make_error(Errc::usage, "this rank's part of {} has {} {}, its layout at least {} {}", tensor.name,
                       part.count, name_of(part.dtype), needed, name_of(tensor.dtype));
  }

  const std::vector<TensorSpec>& tensors_;
};

class TransferExecutor {
 public:
  TransferExecutor(const std::vector<ConstSpan>& from, const std::vector<Span>& to, ProcessGroup& group,
                   const ReadRange& read)
      : from_(from), to_(to), group_(group), read_(read) {}

  // Runs one tensor and step: everything that is forwarded in it has arrived in an earlier one.
  void run(Transfers transfers) {
    Messages out, in;
    for (const Transfer& transfer : transfers) {
      if (transfer.source == transfer.destination)
        load(transfer, place(transfer));
      else if (transfer.source == group_.rank())
        out[transfer.destination].transfers.push_back(&transfer);
      else
        in[transfer.source].transfers.push_back(&transfer);
    }
    for (auto& [source, message] : in) {
      allocate(message);
      message.work = group_.recv(bytes_of(message), source, message_tag);
    }
    for (auto& [destination, message] : out) {
      pack(message);
      message.work = group_.send(bytes_of(message), destination, message_tag);
    }
    for (auto& [source, message] : in) {
      message.work->wait();
      unpack(message);
    }
    for (auto& [destination, message] : out) message.work->wait();
  }

 private:
  // Returns where a range belongs.
  std::byte* place(const Transfer& transfer) const {
    const Span& part = to_[transfer.tensor];
    return static_cast<std::byte*>(part.data) + static_cast<std::size_t>(transfer.write_offset) * size_of(part.dtype);
  }
  std::size_t size(const Transfer& transfer) const {
    return static_cast<std::size_t>(transfer.range.count()) * size_of(to_[transfer.tensor].dtype);
  }
  void load(const Transfer& transfer, std::byte* into) const {
    if (transfer.file != absent) {
      read_(transfer, {into, static_cast<std::size_t>(transfer.range.count()), to_[transfer.tensor].dtype});
      return;
    }
    const void* source = transfer.step > 0 ? to_[transfer.tensor].data : from_[transfer.tensor].data;
    const std::size_t offset = static_cast<std::size_t>(transfer.read_offset) * size_of(to_[transfer.tensor].dtype);
    std::memcpy(into, static_cast<const std::byte*>(source) + offset, size(transfer));
  }
  void allocate(Message& message) const {
    std::size_t bytes = 0;
    for (const Transfer* transfer : message.transfers) bytes += size(*transfer);
    message.bytes.resize(bytes);
  }
  void pack(Message& message) const {
    allocate(message);
    std::byte* next = message.bytes.data();
    for (const Transfer* transfer : message.transfers) {
      load(*transfer, next);
      next += size(*transfer);
    }
  }
  void unpack(const Message& message) const {
    const std::byte* next = message.bytes.data();
    for (const Transfer* transfer : message.transfers) {
      std::memcpy(place(*transfer), next, size(*transfer));
      next += size(*transfer);
    }
  }
  static Span bytes_of(Message& message) { return {message.bytes.data(), message.bytes.size(), DType::uint8}; }

  const std::vector<ConstSpan>& from_;
  const std::vector<Span>& to_;
  ProcessGroup& group_;
  const ReadRange& read_;
};

}  // namespace

void redistribute(const Redistribution& redistribution, const RedistributionPlan& plan,
                  const std::vector<ConstSpan>& from, const std::vector<Span>& to, ProcessGroup& group,
                  const ReadRange& read) {
  if (!plan.missing.empty()) {
    const MissingRange& first = plan.missing.front();
    throw make_error(Errc::io, "no rank and no file has elements {} to {} of {}", first.range.begin,
                     first.range.end - 1, redistribution.tensors[first.tensor].name);
  }
  TransferExecutor executor(from, to, group, read);
  const auto key = [](const Transfer& transfer) { return std::pair(transfer.tensor, transfer.step); };
  try {
    const PartCheck check(redistribution);
    for (const Transfer& transfer : plan.transfers) {
      if (transfer.destination == group.rank()) check.writes(transfer, to);
      if (transfer.source == group.rank()) check.reads(transfer, from, to);
    }
    for (auto first = plan.transfers.begin(); first != plan.transfers.end();) {
      const auto last =
          std::find_if(first, plan.transfers.end(), [&](const Transfer& t) { return key(t) != key(*first); });
      executor.run({first, last});
      first = last;
    }
  } catch (const std::exception& e) {
    group.abort(e.what());
    throw;
  }
}

}  // namespace ddprun::sharding
