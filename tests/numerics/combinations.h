#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Settings that a job may combine: axes of the mesh with what is divided on them, and features. Pure.
namespace ddprun::testing {

// A value of a setting, or of several that belong together. Lines are those of a train.cfg's sections.
struct Choice {
  std::string name;
  std::vector<std::string> groups;  // a job has at most one of each group
  int ranks = 1;                    // by which the choice multiplies those of the job
  std::string parallel = {};        // lines of [parallel]: a job of one rank has none of them
  std::string model = {};           // of [model]
  std::string train = {};           // of [train]
  std::string optim = {};           // of [optim]
  double tolerance = 1e-5;          // of the relative difference between losses of ranks and of one rank
};
using Choices = std::vector<Choice>;

// Axes of two ranks, or four, with ways to divide the state and schedules.
const Choices& axes();
// Features are what a job may have besides. OFFLOAD stands for a folder.
const Choices& features();

// Returns all sets of so many choices of different groups.
std::vector<Choices> combinations(std::size_t size);
// Returns as many different ones of these, or all if there are no more. The same seed gives the same.
std::vector<Choices> drawn(std::vector<Choices> all, std::size_t count, std::uint32_t seed);

// Returns those that are no features, and those that are.
Choices axes_of(const Choices& chosen);
Choices features_of(const Choices& chosen);
bool has_group(const Choices& chosen, const std::string& group);
std::string names_of(const Choices& chosen);
double tolerance_of(const Choices& chosen);

}  // namespace ddprun::testing
