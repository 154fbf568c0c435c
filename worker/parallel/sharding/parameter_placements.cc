#include "ddprun/worker/parallel/sharding/parameter_placements.h"

#include <set>
#include <sstream>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/collectives.h"

namespace ddprun::sharding {
namespace {

// One line for each tensor: its type, whether it is a scalar, and its name, which is the rest.
std::string described(const NamedTensors& tensors) {
  std::ostringstream text;
  for (const auto& [name, tensor] : tensors)
    text << static_cast<int>(tensor.dtype()) << ' ' << (tensor.dim() == 0) << ' ' << name << '\n';
  return text.str();
}

}  // namespace

void ParameterPlacements::add(TensorSpec spec, Placement placement) {
  const std::string name = spec.name;
  parameters_.emplace(name, PlacedTensor(std::move(spec), std::move(placement)));
}

const PlacedTensor& ParameterPlacements::of_parameter(const std::string& name) const {
  const auto found = parameters_.find(name);
  if (found == parameters_.end()) throw make_error(Errc::internal, "there is no placement of {}", name);
  return found->second;
}

PlacedTensor ParameterPlacements::of_tensor(const std::string& name, DType dtype, bool is_scalar) const {
  const bool is_parameter = parameters_.contains(name);
  const PlacedTensor& parameter = of_parameter(is_parameter ? name : name.substr(0, name.rfind('.')));
  const Placement& placement = parameter.placement();
  if (is_scalar && !is_parameter) return {{name, {}, dtype}, {.mesh = placement.mesh, .stage = placement.stage}};
  return {{name, parameter.spec().shape, dtype}, placement};
}

std::vector<PlacedTensor> placed_tensors(const ParameterPlacements& placements, const NamedTensors& own,
                                         ProcessGroup* stages) {
  const auto texts = stages ? all_gather_bytes(*stages, described(own)) : std::vector{described(own)};
  std::vector<PlacedTensor> all;
  std::set<std::string> names;
  for (const std::string& text : texts) {
    std::istringstream lines(text);
    int dtype = 0;
    bool is_scalar = false;
    while (lines >> dtype >> is_scalar) {
      std::string name;
      std::getline(lines.ignore(), name);
      if (names.insert(name).second) all.push_back(placements.of_tensor(name, static_cast<DType>(dtype), is_scalar));
    }
  }
  return all;
}

}  // namespace ddprun::sharding
