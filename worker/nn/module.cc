#include "ddprun/worker/nn/module.h"

#include <algorithm>

#include "ddprun/common/error.h"

namespace ddprun::nn {
namespace {

template <class T>
bool has_name(const std::vector<std::pair<std::string, T>>& entries, const std::string& name) {
  return std::any_of(entries.begin(), entries.end(), [&](const auto& entry) { return entry.first == name; });
}

// Appends entries, their names below prefix.
template <class T>
void append(std::vector<std::pair<std::string, T>>& to, const std::string& prefix,
            std::vector<std::pair<std::string, T>> entries) {
  for (auto& [name, value] : entries) to.emplace_back(prefix + "." + name, std::move(value));
}

}  // namespace

std::vector<std::pair<std::string, Variable>> Module::named_parameters() const {
  auto all = parameters_;
  for (const auto& [name, child] : children_) append(all, name, child->named_parameters());
  return all;
}

std::vector<std::pair<std::string, Tensor>> Module::named_buffers() const {
  auto all = buffers_;
  for (const auto& [name, child] : children_) append(all, name, child->named_buffers());
  return all;
}

std::vector<std::pair<std::string, Generator*>> Module::named_generators() {
  auto all = generators_;
  for (const auto& [name, child] : children_) append(all, name, child->named_generators());
  return all;
}

void Module::train(bool on) {
  training_ = on;
  for (const auto& [name, child] : children_) child->train(on);
}

void Module::zero_grad() {
  for (auto& [name, parameter] : named_parameters()) parameter.zero_grad();
}

Variable Module::register_parameter(const std::string& name, Tensor value) {
  check_name(name);
  return parameters_.emplace_back(name, Variable(std::move(value), true)).second;
}

Tensor Module::register_buffer(const std::string& name, Tensor value) {
  check_name(name);
  return buffers_.emplace_back(name, std::move(value)).second;
}

void Module::register_generator(const std::string& name, Generator& generator) {
  check_name(name);
  generators_.emplace_back(name, &generator);
}

void Module::add_child(const std::string& name, std::unique_ptr<Module> child) {
  check_name(name);
  child->train(training_);
  children_.emplace_back(name, std::move(child));
}

void Module::check_name(const std::string& name) const {
  if (name.empty() || name.find('.') != std::string::npos) {
    throw make_error(Errc::usage, "'{}' is no name for a part of a module: it is empty or has a dot", name);
  }
  if (has_name(parameters_, name) || has_name(buffers_, name) || has_name(generators_, name) ||
      has_name(children_, name)) {
    throw make_error(Errc::usage, "a module has two parts named '{}'", name);
  }
}

}  // namespace ddprun::nn
