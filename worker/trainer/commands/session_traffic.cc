#include "worker/trainer/commands/session_traffic.h"

#include <algorithm>
#include <string>

namespace ddprun::trainer {

SharedBytes shared_bytes(const TrainConfig& config, const nn::Module& model, const ParallelForms& forms) {
  const auto ignored = forms.pipelined ? forms.pipelined->pipeline().names_of_other_stages()
                                       : parse_names(config.parallel.ignored_parameters);
  const auto is_shared = [&](const std::string& name) { return std::ranges::count(ignored, name) == 0; };
  const auto is_expert = [&](const std::string& name) { return forms.experts && forms.experts->parts().divides(name); };
  SharedBytes bytes;
  for (const auto& [name, parameter] : model.named_parameters())
    if (parameter.requires_grad() && is_shared(name))
      (is_expert(name) ? bytes.experts : bytes.parameters) += parameter.value().bytes();
  for (const auto& [name, buffer] : model.named_buffers())
    if (is_shared(name)) bytes.buffers += buffer.bytes();
  return bytes;
}

std::size_t sent_within_replica(const ParallelForms& forms, std::size_t steps) {
  std::size_t sent = forms.pipelined ? forms.pipelined->pipeline().bytes_sent() / steps : 0;
  if (forms.context) sent += forms.context->group().bytes() / steps;
  if (forms.experts) sent += forms.experts->group().bytes() / steps;
  if (!forms.tensor) return sent;
  const TensorGroup& group = forms.tensor->group();
  return sent + *bytes_sent_in_step({}, {.parameters = group.bytes() / steps}, 1, group.size());
}

}  // namespace ddprun::trainer
