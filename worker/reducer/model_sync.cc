#include "worker/reducer/model_sync.h"

#include <algorithm>
#include <string>

#include "common/error.h"
#include "worker/comm/collectives.h"

namespace ddprun {
namespace {

// Returns a text such as "conv1.weight: float32 [10, 1, 5, 5]".
std::string describe(const ParameterRef& parameter) {
  std::string shape;
  for (const auto size : parameter.shape) shape += (shape.empty() ? "" : ", ") + std::to_string(size);
  return fmt::format("{}: {} [{}]", parameter.name, name_of(parameter.dtype), shape);
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t start = 0; start < text.size();) {
    const auto end = text.find('\n', start);
    lines.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return lines;
}

std::string entry(const std::vector<std::string>& lines, std::size_t index) {
  return index < lines.size() ? lines[index] : "nothing";
}

struct SpansByMemory {
  std::vector<Span> on_host, on_device;
  void* stream = nullptr;  // that of the device
};
SpansByMemory by_memory(const std::vector<ParameterRef>& tensors) {
  SpansByMemory all;
  for (const auto& each : tensors) {
    (each.device == host_memory ? all.on_host : all.on_device).push_back(each.span());
    if (each.stream) all.stream = each.stream;
  }
  return all;
}

}  // namespace

void check_same_model(ProcessGroup& group, const std::vector<ParameterRef>& parameters) {
  std::string own;
  for (const auto& parameter : parameters) own += describe(parameter) + "\n";
  // All lists are gathered only when one differs from rank 0's.
  std::vector<std::int64_t> different = {own == broadcast_bytes(group, own, 0) ? 0 : 1};
  allreduce(group, different, ReduceOp::max);
  if (different[0] == 0) return;

  const auto texts = all_gather_bytes(group, own);
  const auto reference = split_lines(texts[0]);
  for (std::size_t r = 1; r < texts.size(); ++r) {
    const auto theirs = split_lines(texts[r]);
    for (std::size_t i = 0; i < std::max(reference.size(), theirs.size()); ++i) {
      const auto here = entry(reference, i), there = entry(theirs, i);
      if (here == there) continue;
      throw make_error(Errc::mismatch,
                       "the ranks have different models: entry {} is \"{}\" at rank 0 but \"{}\" at rank {}", i, here,
                       there, r);
    }
  }
}

void broadcast(ProcessGroup& group, const std::vector<ParameterRef>& tensors, int root) {
  const auto [on_host, on_device, stream] = by_memory(tensors);
  if (!on_host.empty()) group.broadcast_coalesced(on_host, root, {.blocking = true});
  if (!on_device.empty()) group.broadcast_coalesced(on_device, root, {.blocking = true, .after = stream});
}

void start_broadcast(ProcessGroup& group, const std::vector<ParameterRef>& tensors, int root, WorkPtr& in_progress) {
  const auto [on_host, on_device, stream] = by_memory(tensors);
  if (!on_host.empty()) group.broadcast_coalesced(on_host, root, {.blocking = true});
  if (on_device.empty()) return;
  in_progress = group.broadcast_coalesced(on_device, root, {.after = stream});
  in_progress->order(stream);
}

void align_ranks(ProcessGroup& group, std::vector<ParameterRef> parameters, const std::vector<ParameterRef>& buffers) {
  parameters.insert(parameters.end(), buffers.begin(), buffers.end());
  check_same_model(group, parameters);
  broadcast(group, parameters);
}

}  // namespace ddprun
