#include "worker/nn/module.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/error.h"
#include "worker/autograd/checkpoint.h"
#include "worker/autograd/function.h"
#include "worker/autograd/ops/shape.h"

namespace ddprun::nn {
namespace {

template <class T>
bool has_name(const std::vector<std::pair<std::string, T>>& entries, const std::string& name) {
  return std::any_of(entries.begin(), entries.end(), [&](const auto& entry) { return entry.first == name; });
}

// Returns a text for the module that runs.
std::string module_text() {
  const std::string path = autograd::current_scope();
  return path.empty() ? "the model" : "module " + path;
}

Variable moved(const Variable& variable, const std::optional<Device>& device) {
  return device ? to_device(variable, *device) : variable;
}

}  // namespace

Variable Module::operator()(const Variable& given) {
  const autograd::NameScope scope(name_);
  const Variable input = moved(given, inputs_to_);
  return moved(call_hook_ ? call_hooked({input}, false)[0] : call(input), results_to_);
}

std::vector<Variable> Module::operator()(const std::vector<Variable>& given) {
  const autograd::NameScope scope(name_);
  std::vector<Variable> inputs = given;
  for (Variable& input : inputs) input = moved(input, inputs_to_);
  std::vector<Variable> results = call_hook_ ? call_hooked(inputs, true) : forward_all(inputs);
  for (Variable& result : results) result = moved(result, results_to_);
  return results;
}

Variable Module::call(const Variable& input) {
  if (!recompute_ || !training_) return run(input);
  return autograd::checkpoint([this](const std::vector<Variable>& inputs) { return run(inputs[0]); }, {input});
}

std::vector<Variable> Module::call_hooked(const std::vector<Variable>& inputs, bool as_list) {
  const std::vector<Variable> seen = call_hook_->before(inputs);
  return call_hook_->after(as_list ? forward_all(seen) : std::vector{call(seen[0])});
}

Variable Module::forward(const Variable&) {
  throw make_error(Errc::usage, "{} takes a list of inputs", module_text());
}

std::vector<Variable> Module::forward_all(const std::vector<Variable>& inputs) {
  if (inputs.size() != 1)
    throw make_error(Errc::usage, "{} takes one input, not a list of {}", module_text(), inputs.size());
  return {forward(inputs[0])};
}

std::vector<std::pair<std::string, Variable>> Module::named_parameters() const {
  return distinct(&Module::parameters_);
}

std::vector<std::pair<std::string, Tensor>> Module::named_buffers() const {
  std::vector<std::pair<std::string, Tensor>> all;
  for (const auto& [name, buffer] : distinct(&Module::buffers_)) all.emplace_back(name, buffer.value());
  return all;
}

Variable Module::parameter(const std::string& path) const {
  const auto missing = [&] { return make_error(Errc::usage, "the model has no parameter {}", path); };
  const auto named = [](std::string_view name) { return [name](const auto& part) { return part.first == name; }; };
  const Module* module = this;
  std::string_view rest = path;
  while (true) {
    while (module->substitute_) module = module->substitute_.get();
    const auto dot = rest.find('.');
    if (dot == std::string_view::npos) break;
    const auto child = std::ranges::find_if(module->children_, named(rest.substr(0, dot)));
    if (child == module->children_.end()) throw missing();
    module = child->second.get();
    rest.remove_prefix(dot + 1);
  }
  const auto found = std::ranges::find_if(module->parameters_, named(rest));
  if (found == module->parameters_.end()) throw missing();
  return found->second;
}

Module& Module::module(const std::string& path) {
  if (path.empty()) return *this;
  const auto dot = path.find('.');
  for (const auto& [name, child] : children_)
    if (name == path.substr(0, dot)) return child->module(dot == std::string::npos ? "" : path.substr(dot + 1));
  throw make_error(Errc::usage, "the model has no module {}", path);
}

std::vector<std::string> Module::module_names() const {
  std::vector<std::string> names;
  for (const auto& [name, child] : children_) names.push_back(name);
  return names;
}

void Module::for_each_module(const std::function<void(Module&)>& visit) {
  visit(*this);
  for (const auto& [name, child] : children_) child->for_each_module(visit);
}

void Module::set_substitute(std::unique_ptr<Module> other) {
  if (other) other->train(training_);
  substitute_ = std::move(other);
}

void Module::train(bool on) {
  training_ = on;
  if (substitute_) substitute_->train(on);
  for (const auto& [name, child] : children_) child->train(on);
}

void Module::zero_grad() {
  for (auto& [name, parameter] : named_parameters())
    if (parameter.requires_grad()) parameter.zero_grad();
}

void Module::set_requires_grad(bool on) {
  for (auto& [name, parameter] : named_parameters()) parameter.set_requires_grad(on);
}

void Module::set_recompute(Recompute which) {
  for (const auto& [name, child] : children_) {
    const Part kind = child->part();
    const bool is_part = kind != Part::container && (part() == Part::container || !child->children_.empty());
    child->recompute_ = which == Recompute::blocks ? kind == Part::block : which == Recompute::all && is_part;
    child->set_recompute(which);
  }
}

std::vector<std::pair<std::string, Module*>> Module::parameter_users() {
  std::vector<std::pair<std::string, Module*>> users;
  collect_users("", users);
  return users;
}

void Module::collect_users(const std::string& path, std::vector<std::pair<std::string, Module*>>& users) {
  const bool is_user = part() == Part::block ? !named_parameters().empty() : !parameters_.empty();
  if (is_user) users.emplace_back(path, this);
  if (part() == Part::block) return;
  for (const auto& [name, child] : children_) child->collect_users(path.empty() ? name : path + "." + name, users);
}

std::vector<Module::Piece> Module::pieces() {
  std::vector<Piece> all;
  for (Piece& part : sequence()) {
    if (part.run) {
      all.push_back(std::move(part));
      continue;
    }
    Module& child = *part.modules.at(0);
    for (Piece& inner : child.pieces()) {
      if (inner.modules[0] == &child) {  // it cannot be cut
        all.push_back({part.name, {&child}, std::move(inner.run)});
        continue;
      }
      auto run = [&child, piece = std::move(inner.run)](const Variable& input) {
        const autograd::NameScope scope(child.name_);
        return piece(input);
      };
      all.push_back({part.name + "." + inner.name, std::move(inner.modules), std::move(run)});
    }
  }
  if (all.empty()) all.push_back({name_, {this}, [this](const Variable& input) { return (*this)(input); }});
  return all;
}

template <class Change>
void Module::change_values(Change change) {
  for (const auto list : {&Module::parameters_, &Module::buffers_}) {
    for (auto& [name, variable] : distinct(list)) {
      Tensor value = change(variable.value());
      if (value.storage() != variable.value().storage()) variable.set_value(std::move(value));
    }
  }
}

void Module::to(Device device) {
  const MemoryScope scope(MemoryOwner::parameters);
  change_values([device](const Tensor& value) { return value.to(device); });
}

void Module::place(Device device) {
  to(device);
  inputs_to_ = device;
}

void Module::to(DType dtype) {
  change_values([dtype](const Tensor& value) { return is_floating(value.dtype()) ? value.to(dtype) : value; });
}

Variable Module::register_parameter(const std::string& name, Tensor value) {
  return register_parameter(name, Variable(std::move(value), true));
}

Variable Module::register_parameter(const std::string& name, const Variable& parameter) {
  check_name(name);
  return parameters_.emplace_back(name, parameter).second;
}

Variable Module::register_buffer(const std::string& name, Tensor value) {
  check_name(name);
  return buffers_.emplace_back(name, Variable(std::move(value))).second;
}

void Module::add_child(const std::string& name, std::unique_ptr<Module> child) {
  check_name(name);
  child->train(training_);
  child->name_ = name;
  children_.emplace_back(name, std::move(child));
}

void Module::collect(const std::string& prefix, NamedVariables Module::*list, NamedVariables& all) const {
  if (substitute_) return substitute_->collect(prefix, list, all);
  for (const auto& [name, variable] : this->*list) all.emplace_back(prefix + name, variable);
  for (const auto& [name, child] : children_) child->collect(prefix + name + ".", list, all);
}

Module::NamedVariables Module::distinct(NamedVariables Module::*list) const {
  NamedVariables all, result;
  collect("", list, all);
  for (auto& [name, variable] : all) {
    const auto same = [&](const auto& earlier) { return earlier.second.is(variable); };
    if (std::none_of(result.begin(), result.end(), same)) result.emplace_back(std::move(name), std::move(variable));
  }
  return result;
}

void Module::check_name(const std::string& name) const {
  if (name.empty() || name.find('.') != std::string::npos) {
    throw make_error(Errc::usage, "'{}' is no name for a part of a module: it is empty or has a dot", name);
  }
  if (has_name(parameters_, name) || has_name(buffers_, name) || has_name(children_, name)) {
    throw make_error(Errc::usage, "a module has two parts named '{}'", name);
  }
}

}  // namespace ddprun::nn
