#include "worker/comm/operations/call.h"

#include <algorithm>
#include <numeric>

namespace ddprun::comm {
namespace {

struct PartLocation {
  std::size_t offset;  // in bytes
  std::size_t count;   // in elements
};

PartLocation locate_part(const Operation& operation, const Parts* parts, int rank) {
  const auto element = size_of(operation.dtype);
  if (parts) return {parts->offset(rank) * element, parts->count(rank)};
  return {static_cast<std::size_t>(rank) * operation.count * element, operation.count};
}

}  // namespace

Parts::Parts(std::vector<std::size_t> counts) : counts_(std::move(counts)), offsets_(counts_.size() + 1) {
  std::partial_sum(counts_.begin(), counts_.end(), offsets_.begin() + 1);
}

std::size_t Parts::largest() const {
  return counts_.empty() ? 0 : *std::max_element(counts_.begin(), counts_.end());
}

ConstSpan Call::input_part(int rank) const {
  const auto [offset, count] = locate_part(operation, layout ? layout->input_parts.get() : nullptr, rank);
  return {count > 0 ? static_cast<const std::byte*>(input.data) + offset : nullptr, count, operation.dtype,
          input.device};
}

Span Call::output_part(int rank) const {
  const auto [offset, count] = locate_part(operation, layout ? layout->output_parts.get() : nullptr, rank);
  return {count > 0 ? static_cast<std::byte*>(output.data) + offset : nullptr, count, operation.dtype, output.device};
}

std::int32_t Call::device_of_spans() const {
  auto device = host_memory;
  for (const auto& each : layout->inputs) device = std::max(device, each.device);
  for (const auto& each : layout->outputs) device = std::max(device, each.device);
  return device;
}

std::size_t Call::largest_part() const {
  if (!layout) return operation.count;
  std::size_t largest = 0;
  if (layout->input_parts) largest = layout->input_parts->largest();
  if (layout->output_parts) largest = std::max(largest, layout->output_parts->largest());
  return largest;
}

}  // namespace ddprun::comm
