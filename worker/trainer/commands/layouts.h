#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/trainer/config/model_axes.h"
#include "worker/trainer/config/train_config.h"

// The layouts that `plan --world_size` compares. Pure functions.
namespace ddprun::trainer {

// The division of the work among the ranks of a job: the sizes of mesh_axes(), and what parallel.zero divides of the
// state.
struct Layout {
  int data = 1;
  AxisRanks ranks;
  std::int64_t zero = 0;

  bool operator==(const Layout&) const = default;
};
// Returns a text such as "data 2 x tensor 2 x pipeline 2" or "data 8, zero 1".
std::string to_string(const Layout& layout);
// Returns whether the layout has several axes besides data.
bool is_product(const Layout& layout);

// Returns the factorisations of the ranks on the axes that the job's model has something for, and with each stage of
// ZeRO where there are replicas of a part of the model: first those with one axis beside data, then products of several
// axes, in which at most most_neighbours ranks exchange in every layer.
inline constexpr int most_neighbours = 8;
std::vector<Layout> layouts_of(const TrainConfig& config, int ranks);
// Returns the job with this layout, and the samples of a step that it has with only data parallelism. A pipeline
// without parallel.micro_batches has four for each stage, or as many as samples.
TrainConfig with_layout(const TrainConfig& config, const Layout& layout);

}  // namespace ddprun::trainer
