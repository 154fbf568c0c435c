#include "worker/trainer/recovery/state_rest.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace ddprun::trainer {
namespace {

// A sequence of numbers that a double holds exactly. Text would round them.
class Numbers {
 public:
  void add(double value) { values.push_back(value); }
  void add(std::int64_t value) { values.push_back(static_cast<double>(value)); }
  void add(const std::optional<double>& value) {
    add(value ? 1.0 : 0.0);
    add(value.value_or(0));
  }
  std::vector<double> values;
};

class NumberReader {
 public:
  explicit NumberReader(const std::vector<double>& values) : at_(values.begin()) {}
  double real() { return *at_++; }
  std::int64_t integer() { return static_cast<std::int64_t>(real()); }
  bool flag() { return real() != 0; }
  std::optional<double> optional() {
    const bool is_there = flag();
    const double value = real();
    return is_there ? std::optional(value) : std::nullopt;
  }

 private:
  std::vector<double>::const_iterator at_;
};

void add(Numbers& to, const std::optional<checkpoint::Plateau>& plateau) {
  to.add(plateau ? std::int64_t{1} : 0);
  if (!plateau) return;
  to.add(plateau->lr);
  to.add(plateau->best);
  to.add(plateau->bad_evaluations);
  to.add(plateau->cooldown);
}

std::optional<checkpoint::Plateau> read_plateau(NumberReader& from) {
  if (!from.flag()) return std::nullopt;
  checkpoint::Plateau plateau;
  plateau.lr = from.real();
  plateau.best = from.optional();
  plateau.bad_evaluations = from.integer();
  plateau.cooldown = from.integer();
  return plateau;
}

// The times of a step that observers read.
constexpr std::array times = {&StepTimes::data,      &StepTimes::upload, &StepTimes::forward, &StepTimes::backward,
                              &StepTimes::optimizer, &StepTimes::start,  &StepTimes::wait};

void add(Numbers& to, const StepResult& result) {
  for (const auto value : {result.epoch, result.steps, result.samples, result.first}) to.add(value);
  to.add(result.loss);
  to.add(result.grad_norm);
  to.add(result.loss_scale);
  to.add(result.experts ? std::int64_t{1} : 0);
  if (result.experts)
    for (const double value : {result.experts->load, result.experts->dropped}) to.add(value);
  for (const bool value : {result.skipped, result.ends_epoch, result.stop_requested}) to.add(std::int64_t{value});
  to.add(static_cast<std::int64_t>(result.bytes_sent));
  for (const auto time : times) to.add((result.times.*time).count());
}

StepResult read_result(NumberReader& from) {
  StepResult result;
  for (auto* value : {&result.epoch, &result.steps, &result.samples, &result.first}) *value = from.integer();
  result.loss = from.real();
  result.grad_norm = from.optional();
  result.loss_scale = from.optional();
  if (from.flag()) result.experts = ExpertUse{.load = from.real(), .dropped = from.real()};
  for (auto* value : {&result.skipped, &result.ends_epoch, &result.stop_requested}) *value = from.flag();
  result.bytes_sent = static_cast<std::uint64_t>(from.integer());
  for (const auto time : times) result.times.*time = profiler::Seconds(from.real());
  return result;
}

void add(Numbers& to, const std::optional<LastStep>& last) {
  to.add(last ? std::int64_t{1} : 0);
  if (!last) return;
  add(to, last->result);
  to.add(last->best_loss);
  add(to, last->plateau);
  to.add(std::int64_t{last->events_done});
}

std::optional<LastStep> read_last(NumberReader& from) {
  if (!from.flag()) return std::nullopt;
  LastStep last;
  last.result = read_result(from);
  last.best_loss = from.optional();
  last.plateau = read_plateau(from);
  last.events_done = from.flag();
  return last;
}

std::string bytes_of(const Numbers& numbers) {
  return {reinterpret_cast<const char*>(numbers.values.data()), numbers.values.size() * sizeof(double)};
}

std::vector<double> numbers_of(std::string_view bytes) {
  std::vector<double> numbers(bytes.size() / sizeof(double));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(double));
  return numbers;
}

}  // namespace

std::string encode_last(const std::optional<LastStep>& last) {
  Numbers numbers;
  add(numbers, last);
  return bytes_of(numbers);
}

std::optional<LastStep> decode_last(std::string_view bytes) {
  const auto numbers = numbers_of(bytes);
  NumberReader from(numbers);
  return read_last(from);
}

StateRest rest_of(const TrainState& state, const StepBackup& backup) {
  return {
      .run = checkpoint::to_json(state.run), .has_averages = state.ema && state.ema->started(), .last = backup.last()};
}

// The run's JSON, a zero byte, and the numbers.
std::string encode(const StateRest& rest) {
  Numbers numbers;
  numbers.add(rest.has_averages ? std::int64_t{1} : 0);
  add(numbers, rest.last);
  return rest.run + '\0' + bytes_of(numbers);
}

StateRest decode_state_rest(std::string_view bytes) {
  StateRest rest{.run = std::string(bytes.substr(0, bytes.find('\0')))};
  const auto numbers = numbers_of(bytes.substr(rest.run.size() + 1));
  NumberReader from(numbers);
  rest.has_averages = from.flag();
  rest.last = read_last(from);
  return rest;
}

void take_rest(const StateRest& rest, TrainState& state, StepBackup& backup, const std::string& source) {
  backup.set_last(rest.last);
  state.continue_from(checkpoint::run_state_from_json(rest.run, source));
  if (rest.has_averages) state.ema->set_started();
}

}  // namespace ddprun::trainer
