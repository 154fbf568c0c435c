#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/config/settings.h"
#include "common/error.h"
#include "worker/data/dataset.h"
#include "worker/nn/models.h"
#include "worker/tasks/tasks.h"

namespace ddprun::plugin {

// Functions by name, each of which makes a Thing.
template <class Thing, class... Arguments>
class Makers {
 public:
  using Make = std::function<std::unique_ptr<Thing>(Arguments...)>;

  void add(std::string name, Make make) { makers_.emplace_back(std::move(name), std::move(make)); }

  bool contains(std::string_view name) const { return find(name) != nullptr; }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : makers_) names.push_back(entry.first);
    return names;
  }
  // REQUIRES: contains(name). Throws Errc::usage, "KEY = NAME: ...", for an exception of the function, and if the
  // function returns null.
  std::unique_ptr<Thing> make(std::string_view key, std::string_view name, Arguments... arguments) const {
    std::unique_ptr<Thing> thing;
    try {
      thing = (*find(name))(arguments...);
    } catch (const std::exception& e) {
      throw make_error(Errc::usage, "{} = {}: {}", key, name, e.what());
    }
    if (!thing) throw make_error(Errc::usage, "{} = {}: the plugin's function returned nothing", key, name);
    return thing;
  }

 private:
  const Make* find(std::string_view name) const {
    for (const auto& [own, make] : makers_)
      if (own == name) return &make;
    return nullptr;
  }

  std::vector<std::pair<std::string, Make>> makers_;
};

// The settings in [data] for a data set that is generated or read from files.
struct DatasetOptions {
  data::Split split = data::Split::train;
  std::filesystem::path dir;  // data.dir
  std::int64_t samples = 0;   // data.samples, or data.test_samples
  std::uint64_t seed = 0;     // data.seed
};

// A plugin's additions to the built-in models, data sets and tasks, and the keys of a train.cfg with which it can be
// configured. Filled while the plugin is loaded; afterwards it is only read.
class Registry {
 public:
  using Models = Makers<nn::Module, const nn::ModelOptions&, Generator&>;
  using Datasets = Makers<data::Dataset, const DatasetOptions&>;
  using Tasks = Makers<tasks::Task, const tasks::TaskOptions&>;

  Models models;      // for model.name
  Datasets datasets;  // for data.name
  Tasks tasks;        // for train.task

  // A key of the plugin's own, such as "spiral.noise", with its default; the value is set before anything is made.
  template <class T>
  std::shared_ptr<const T> setting(std::string key, T fallback, SettingSpec spec) {
    const auto value = std::make_shared<T>(std::move(fallback));
    bindings_.push_back([key = std::move(key), spec = std::move(spec), value](Settings& settings) {
      if (settings.knows(key))
        throw make_error(Errc::usage, "model.plugin: the plugin adds the key {}, which exists", key);
      settings.add(key, *value, spec);
    });
    return value;
  }

  // Adds the plugin's keys; the registry outlives the settings. Throws Errc::usage for one that exists already.
  void bind(Settings& settings) const {
    for (const auto& binding : bindings_) binding(settings);
  }

 private:
  std::vector<std::function<void(Settings&)>> bindings_;
};

// Combines the sizes of the types that a plugin and its program share, as the compiler of this file sees them.
constexpr std::uint64_t layout_fingerprint() {
  std::uint64_t fingerprint = 0;
  for (const std::size_t size :
       {sizeof(Tensor), sizeof(Variable), sizeof(nn::Module), sizeof(nn::ModelOptions), sizeof(data::SampleLayout),
        sizeof(data::Source), sizeof(data::Batch), sizeof(DatasetOptions), sizeof(tasks::TaskOptions), sizeof(Registry),
        sizeof(SettingSpec), sizeof(std::string)})
    fingerprint = fingerprint * 1'000'003 + size;
  return fingerprint;
}

}  // namespace ddprun::plugin
