#include "worker/parallel/forms/data/local_sgd/local_sgd.h"

#include "common/error.h"
#include "worker/parallel/group_tensors.h"

namespace ddprun {
namespace {

LocalSgdOptions checked(const LocalSgdOptions& options) {
  if (options.period < 1) throw make_error(Errc::usage, "local SGD: a period of {} steps", options.period);
  if (options.fragments < 1 || options.fragments > options.period)
    throw make_error(Errc::usage, "local SGD: {} fragments in a period of {} steps", options.fragments, options.period);
  if (options.fragment_sync_delay < 0 || options.fragment_sync_delay >= options.period)
    throw make_error(Errc::usage, "local SGD: a delay of {} steps in a period of {}", options.fragment_sync_delay,
                     options.period);
  return options;
}

std::vector<Fragment::Member> what_is_averaged(const nn::Module& model) {
  std::vector<Fragment::Member> all;
  for (const auto& [name, parameter] : model.named_parameters())
    if (parameter.requires_grad()) all.push_back({.name = name, .tensor = parameter.value(), .trained = true});
  for (const auto& [name, buffer] : model.named_buffers())
    if (is_floating(buffer.dtype())) all.push_back({.name = name, .tensor = buffer, .trained = false});
  return all;
}

// Returns the buffers that have no average.
OwnTensors counters_of(const nn::Module& model) {
  auto buffers = model.named_buffers();
  std::erase_if(buffers, [](const auto& each) { return is_floating(each.second.dtype()); });
  return OwnTensors(std::move(buffers));
}

std::vector<Fragment> make_fragments(const std::vector<Fragment::Member>& members, const LocalSgdOptions& options) {
  std::vector<std::size_t> bytes;
  for (const auto& member : members) bytes.push_back(static_cast<std::size_t>(member.tensor.bytes()));
  const auto places = fragments_of(bytes, options.fragments);
  std::vector<std::vector<Fragment::Member>> parts(static_cast<std::size_t>(options.fragments));
  for (std::size_t i = 0; i < members.size(); ++i) parts[static_cast<std::size_t>(places[i])].push_back(members[i]);
  std::vector<Fragment> fragments;
  for (auto& part : parts) fragments.emplace_back(std::move(part), options.outer, options.fragment_sync_delay > 0);
  return fragments;
}

}  // namespace

// Puts the average into the model; the values of this rank return at the end.
class LocalSgd::Average {
 public:
  explicit Average(LocalSgd& local) : local_(local) {
    for (const auto& member : local.averaged_) own_.push_back(member.tensor.clone());
    local.average();
  }
  ~Average() {
    for (std::size_t i = 0; i < own_.size(); ++i) {
      Tensor tensor = local_.averaged_[i].tensor;
      tensor.copy_from(own_[i]);
    }
  }
  Average(const Average&) = delete;
  Average& operator=(const Average&) = delete;

 private:
  LocalSgd& local_;
  std::vector<Tensor> own_;
};

LocalSgd::LocalSgd(nn::Module& model, ProcessGroup& group, const LocalSgdOptions& options)
    : model_(model),
      group_(group),
      options_(checked(options)),
      ddp_(model, group, options.ddp),
      averaged_(what_is_averaged(model)),
      counters_(counters_of(model)),
      schedule_{.period = options.period, .fragments = options.fragments, .delay = options.fragment_sync_delay},
      fragments_(make_fragments(averaged_, options)) {}

void LocalSgd::zero_grad() {
  ddp_.zero_grad();
  if (steps_ < options_.start_localSGD_iter)
    local_.reset();
  else if (!local_)
    local_ = ddp_.hold_reduction();
}

Variable LocalSgd::forward(const Variable& input) {
  prepare_forward();
  return model_(input);
}

// While gradients stay local, buffers do too.
void LocalSgd::prepare_forward() {
  if (!local_) ddp_.prepare_forward();
}

template <class Function>
void LocalSgd::timed(Function function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  averaging_ += std::chrono::steady_clock::now() - start;
}

void LocalSgd::average() {
  std::vector<Span> spans;
  for (const auto& member : averaged_) spans.push_back(span_of_tensor(member.tensor));
  void* const after = averaged_.empty() ? nullptr : compute_stream(averaged_.front().tensor.device());
  timed([&] { group_.allreduce_coalesced(spans, ReduceOp::average, {.blocking = true, .after = after}); });
  for (const auto& member : averaged_) member.tensor.storage()->bump_version();
}

void LocalSgd::parameters_updated() {
  ++steps_;
  const auto local_steps = steps_ - options_.start_localSGD_iter;
  if (local_steps == 0) restart();
  if (local_steps <= 0) return;
  timed([&] {
    if (const auto begins = schedule_.begins_after(local_steps)) fragment(*begins).begin(group_);
    if (const auto ends = schedule_.ends_after(local_steps)) fragment(*ends).end();
  });
}

void LocalSgd::restart() {
  for (Fragment& each : fragments_) each.restart();
}

std::shared_ptr<void> LocalSgd::evaluated_model() {
  return std::make_shared<Average>(*this);
}

void LocalSgd::visit_parameters(const Visitor& visit) {
  const auto average = evaluated_model();
  ddp_.visit_parameters(visit);
}

// A rank goes on with the average that was saved, unless its own parameters come from the saved state as well.
void LocalSgd::parameters_restored() {
  restart();
}

std::vector<HookState> LocalSgd::hook_state() {
  std::vector<HookState> state{{"local_sgd/steps", {&steps_, 1, DType::int64}}};
  for (const auto& member : averaged_) state.push_back({"local_sgd/" + member.name, span_of_tensor(member.tensor)});
  for (Fragment& each : fragments_) each.add_state("local_sgd/", state);
  for (auto& own : counters_.state()) state.push_back(std::move(own));
  return state;
}

}  // namespace ddprun
