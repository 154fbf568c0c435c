#include "worker/parallel/forms/pipeline/model_split.h"

#include <algorithm>
#include <limits>

#include <fmt/ranges.h>

#include "common/error.h"

namespace ddprun {
namespace {

// Returns the parts for a limit of each one's sum, filled from the front; empty if a single cost is above it.
std::vector<std::size_t> cuts_within(const std::vector<double>& costs, double limit) {
  std::vector<std::size_t> cuts;
  double sum = 0;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    if (i > 0 && sum + costs[i] > limit) {
      cuts.push_back(i);
      sum = 0;
    }
    sum += costs[i];
  }
  return cuts;
}

// Each part has at least one element: if there are too few parts, the last ones are cut from the end.
void add_cuts(std::vector<std::size_t>& cuts, std::size_t count, std::size_t elements) {
  for (std::size_t at = elements - 1; cuts.size() < count; --at) {
    const auto place = std::ranges::lower_bound(cuts, at);
    if (place == cuts.end() || *place != at) cuts.insert(place, at);
  }
}

void check_tied(nn::Module& model, const std::vector<std::string>& modules, const std::vector<Device>& devices) {
  for (std::size_t m = 0; m < modules.size(); ++m)
    for (const auto& [name, parameter] : model.module(modules[m]).named_parameters())
      if (parameter.device() != devices[m])
        throw make_error(Errc::usage,
                         "the model cannot be split here: {}.{} is shared by modules on {} and {}; keep them on one "
                         "device",
                         modules[m], name, to_string(devices[m]), to_string(parameter.device()));
}

}  // namespace

std::vector<std::size_t> cut_evenly(const std::vector<double>& costs, std::size_t parts) {
  // The best limit is the sum of some range.
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t begin = 0; begin < costs.size(); ++begin) {
    double sum = 0;
    for (std::size_t end = begin; end < costs.size(); ++end) {
      sum += costs[end];
      const bool fits = sum >= *std::ranges::max_element(costs) && cuts_within(costs, sum).size() < parts;
      if (fits) best = std::min(best, sum);
    }
  }
  auto cuts = cuts_within(costs, best);
  add_cuts(cuts, parts - 1, costs.size());
  return cuts;
}

void split_model(nn::Module& model, const std::vector<std::string>& names, const std::vector<Device>& devices) {
  const auto modules = model.module_names();
  std::vector<Device> device_of;
  std::size_t next = 0;
  for (const auto& module : modules) {
    if (next < names.size() && module == names[next]) ++next;
    device_of.push_back(devices.at(next));
  }
  if (next < names.size())
    throw make_error(Errc::usage, "{} is not among the modules of the model, or out of order; they are: {}",
                     names[next], fmt::join(modules, ", "));
  for (std::size_t m = 0; m < modules.size(); ++m) model.module(modules[m]).place(device_of[m]);
  check_tied(model, modules, device_of);
  model.place_results(devices.front());
}

}  // namespace ddprun
