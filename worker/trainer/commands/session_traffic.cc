#include "worker/trainer/commands/session_traffic.h"

#include <algorithm>
#include <string>
#include <vector>

#include "worker/trainer/session/update_parts.h"

namespace ddprun::trainer {

SharedBytes shared_bytes(const TrainConfig& config, const nn::Module& model, const ParallelForms& forms) {
  const auto ignored = forms.pipelined ? forms.pipelined->pipeline().names_of_other_stages()
                                       : parse_names(config.parallel.ignored_parameters);
  const auto is_shared = [&](const std::string& name) { return std::ranges::count(ignored, name) == 0; };
  SharedBytes bytes;
  for (const auto& [name, parameter] : model.named_parameters())
    if (parameter.requires_grad() && is_shared(name))
      (forms.axes.is_expert(name) ? bytes.experts : bytes.parameters) += parameter.value().bytes();
  for (const auto& [name, buffer] : model.named_buffers())
    if (is_shared(name)) bytes.buffers += buffer.bytes();
  return bytes;
}

std::size_t sent_within_replica(const ParallelForms& forms, std::size_t steps) {
  const std::size_t of_stages = forms.pipelined ? forms.pipelined->pipeline().bytes_sent() : 0;
  return (of_stages + forms.axes.bytes()) / steps;
}

// Each element is sent once to the owner, and to each rank that has it.
double sent_for_update(const TrainConfig& config, TrainSession& session) {
  const auto state = config.optim.name == "muon" ? session.parts() : std::nullopt;
  if (!state) return 0;
  std::vector<sharding::PlacedTensor> matrices;
  for (const auto& tensor : state->optimizer.tensors())
    if (tensor.spec().name.ends_with(".momentum_buffer") && !is_whole(tensor.placement())) matrices.push_back(tensor);
  const int ranks = session.group().size();
  const auto owned = at_owners(matrices, ranks);
  std::vector<bool> takes_part(static_cast<std::size_t>(ranks));
  double sent = 0;
  for (std::size_t i = 0; i < matrices.size(); ++i)
    for (int rank = 0; rank < ranks; ++rank) {
      const auto part = static_cast<double>(matrices[i].local_bytes(rank));
      if (matrices[i].exists_at(rank)) takes_part[static_cast<std::size_t>(rank)] = true;
      sent += owned[i].exists_at(rank) ? static_cast<double>(owned[i].local_bytes(rank)) - part : part;
    }
  return sent / static_cast<double>(std::max<std::int64_t>(1, std::ranges::count(takes_part, true)));
}

}  // namespace ddprun::trainer
