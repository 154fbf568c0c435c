#include "tests/contract/group_bits.h"

#include <cstring>
#include <random>

#include <fmt/core.h>

#include "common/float16.h"
#include "tests/contract/group_values.h"

namespace ddprun::contract {
namespace {

Bytes random_values(DType dtype, std::size_t count, int rank) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::normal_distribution<float> normal;
  Bytes bytes(count * size_of(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    const float value = normal(random) * static_cast<float>(1 << (i % 12));
    const auto put = [&](auto typed) { std::memcpy(bytes.data() + i * sizeof typed, &typed, sizeof typed); };
    if (dtype == DType::float32) put(value);
    if (dtype == DType::float16) put(float16_from_float(value));
    if (dtype == DType::bfloat16) put(bfloat16_from_float(value));
  }
  return bytes;
}

// All operations of one rank.
class Operations {
 public:
  Operations(ProcessGroup& group, const Execute& execute) : group_(group), execute_(execute) {}

  Results run() {
    for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16}) {
      for (const std::size_t count : {std::size_t{37}, std::size_t{9001}}) {
        reduce(dtype, count);
        move(dtype, count);
      }
    }
    return std::move(results_);
  }

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(group_.size()); }
  int last() const { return group_.size() - 1; }

  void add(DType dtype, std::size_t inputs, std::size_t outputs, const StartOperation& start) {
    results_.push_back(execute_(start, dtype, random_values(dtype, inputs, group_.rank()),
                                random_values(dtype, outputs, group_.rank())));
  }

  void reduce(DType dtype, std::size_t count) {
    for (const auto op : all_ops) {
      if (!fits(op, dtype)) continue;
      const auto reduction =
          op == ReduceOp::premultiplied_sum ? Reduction::premultiplied_sum(0.3 + group_.rank()) : Reduction(op);
      add(dtype, 0, count, [&](ConstSpan, Span out) { return group_.allreduce(out, reduction); });
      add(dtype, count, count, [&](ConstSpan in, Span out) { return group_.allreduce(in, out, reduction); });
      add(dtype, count, count, [&](ConstSpan in, Span out) { return group_.reduce(in, out, last(), reduction); });
      add(dtype, ranks() * count, count,
          [&](ConstSpan in, Span out) { return group_.reduce_scatter(in, out, reduction); });
    }
  }

  void move(DType dtype, std::size_t count) {
    const auto whole = ranks() * count;
    add(dtype, 0, count, [&](ConstSpan, Span out) { return group_.broadcast(out, last()); });
    add(dtype, count, whole, [&](ConstSpan in, Span out) { return group_.allgather(in, out); });
    add(dtype, count, whole, [&](ConstSpan in, Span out) { return group_.gather(in, out, 0); });
    add(dtype, whole, count, [&](ConstSpan in, Span out) { return group_.scatter(in, out, 0); });
    add(dtype, whole, whole, [&](ConstSpan in, Span out) { return group_.all_to_all(in, out); });
    add(dtype, 0, whole, [&](ConstSpan, Span out) { return group_.all_to_all(out, out); });
    add(dtype, 0, whole, [&](ConstSpan, Span out) {
      ConstSpan own = out;
      own.data = static_cast<std::byte*>(out.data) + static_cast<std::size_t>(group_.rank()) * count * size_of(dtype);
      own.count = count;
      return group_.allgather(own, out);
    });
    if (group_.size() == 1) return;
    add(dtype, count, count, [&](ConstSpan in, Span out) {
      const int right = (group_.rank() + 1) % group_.size(), left = (group_.rank() + last()) % group_.size();
      const auto sent = group_.send(in, right, 1);
      group_.recv(out, left, 1)->wait();
      return sent;
    });
  }

  ProcessGroup& group_;
  const Execute& execute_;
  Results results_;
};

}  // namespace

Bytes on_host(const StartOperation& start, DType dtype, const Bytes& input, Bytes output) {
  start(typed(input, dtype), typed(output, dtype))->wait();
  return output;
}

std::vector<Results> results_of_ranks(Groups& groups, const Execute& execute) {
  std::vector<Results> results(groups.size());
  run_ranks(groups, [&](ProcessGroup& group) {
    results[static_cast<std::size_t>(group.rank())] = Operations(group, execute).run();
  });
  return results;
}

std::string first_difference(const std::vector<Results>& expected, const std::vector<Results>& found) {
  if (expected.size() != found.size()) return "the number of ranks";
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    if (expected[rank].size() != found[rank].size()) return "the number of operations";
    for (std::size_t i = 0; i < found[rank].size(); ++i)
      if (expected[rank][i] != found[rank][i]) return fmt::format("rank {}, operation {}", rank, i);
  }
  return "";
}

}  // namespace ddprun::contract
