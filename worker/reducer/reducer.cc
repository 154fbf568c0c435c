#include "worker/reducer/reducer.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "common/error.h"
#include "common/first_names.h"
#include "worker/reducer/hooks/allreduce_hook.h"

namespace ddprun {
namespace {

// The group allocates the memory, so that it may reduce it without a copy.
std::shared_ptr<void> zeroed_memory(ProcessGroup& group, const ReducerOptions& options, std::int32_t device,
                                    std::size_t bytes) {
  const auto buffer = std::make_shared<RegisteredBuffer>(options.allocate ? options.allocate(device, bytes)
                                                                          : group.allocate_on(device, bytes));
  return {buffer, buffer->data()};
}

// Returns the device that all parameters have.
std::int32_t device_of(const std::vector<ParameterRef>& parameters) {
  if (parameters.empty()) return host_memory;
  const auto first = parameters.front();
  const auto other = std::ranges::find_if(parameters, [&](const auto& each) { return each.device != first.device; });
  if (other != parameters.end())
    throw make_error(Errc::unsupported, "{} and {} are on different devices: gradients are averaged on one", first.name,
                     other->name);
  return first.device;
}

void end_all(const std::vector<WorkPtr>& works) {
  for (const auto& work : works) {
    try {
      work->wait();
    } catch (const Error&) {
      // The pass or the group has reported it already.
    }
  }
}

}  // namespace

Reducer::Reducer(ProcessGroup& group, const std::vector<ParameterRef>& parameters, const ReducerOptions& options)
    : group_(group),
      options_(options),
      buckets_(plan_buckets(parameters, options.limits, options.delayed, options.alone, options.apart)),
      parameters_(parameters),
      device_(device_of(parameters)),
      states_(parameters.size()),
      used_(parameters.size()),
      used_anywhere_(parameters.size(), options.find_unused_parameters || options.static_graph ? 0 : 1) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const auto& bucket = buckets_[b];
    memory_.push_back(zeroed_memory(group, options_, device_, bucket.count * size_of(bucket.dtype)));
    for (std::size_t s = 0; s < bucket.slices.size(); ++s) {
      states_[bucket.slices[s].parameter] = {.bucket = b, .slice = s};
    }
  }
  missing_.resize(buckets_.size());
  expect_parameters();
  describe_buckets();
  set_hook(make_allreduce_hook(group));
}

Reducer::~Reducer() {
  if (!works_.empty()) hook_->cancel();
  for (const auto* works : {&last_works_, &works_}) end_all(*works);
}

void Reducer::describe_buckets() {
  for (const auto& bucket : buckets_) {
    auto& slices = slices_.emplace_back();
    for (const auto& slice : bucket.slices) {
      const auto& parameter = parameters_[slice.parameter];
      slices.push_back({parameter.name, parameter.shape, slice.offset, slice.count});
    }
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    grad_buckets_.push_back({.index = b,
                             .span = {memory_[b].get(), buckets_[b].count, buckets_[b].dtype, device_},
                             .slices = slices_[b],
                             .after = parameters_.front().stream,
                             .last = b + 1 == buckets_.size()});
}

void Reducer::set_hook(std::unique_ptr<CommHook> hook) {
  if (next_ > 0) throw Error(Errc::usage, "a communication hook cannot be registered within a backward pass");
  if (device_ != host_memory && !hook->accepts_devices())
    throw make_error(Errc::unsupported,
                     "this communication hook works on memory of the host, and gradients are on cuda:{}", device_);
  hook->prepare(grad_buckets_);
  hook_ = std::move(hook);
}

std::shared_ptr<void> Reducer::gradient_memory(std::size_t parameter) const {
  const auto& state = states_.at(parameter);
  const auto& bucket = buckets_[state.bucket];
  auto* start = static_cast<std::byte*>(memory_[state.bucket].get());
  return {memory_[state.bucket], start + bucket.slices[state.slice].offset * size_of(bucket.dtype)};
}

void Reducer::check_usable() const {
  if (failed_) throw Error(Errc::usage, "an earlier gradient reduction failed: this reducer cannot be used again");
}

void Reducer::check_ready(std::size_t parameter) {
  const auto& state = states_[parameter];
  if (!state.ready && state.expected) return;
  failed_ = true;
  if (state.ready)
    throw make_error(
        Errc::usage,
        "the gradient of {} became ready twice in one reduced pass: there were two backward passes, or several "
        "losses use the parameter; run all but the last backward pass under no_sync()",
        parameters_[parameter].name);
  throw make_error(Errc::usage,
                   "the backward pass reached {}, the first one did not: with static_graph every pass reaches the same "
                   "parameters",
                   parameters_[parameter].name);
}

void Reducer::mark_ready(std::size_t parameter) {
  check_usable();
  auto& state = states_.at(parameter);
  check_ready(parameter);
  state.ready = true;
  mark_used(parameter);
  --missing_[state.bucket];
  if (parameter == options_.delay_until) {
    for (std::size_t b = 0; b < buckets_.size(); ++b)
      if (is_delayed(buckets_[b])) --missing_[b];
  }
  if (transfers_) record_ended();
  start_ready_buckets();
}

bool Reducer::is_delayed(const Bucket& bucket) const {
  return std::ranges::count(options_.delayed, bucket.slices[0].parameter) > 0;
}

// Counts what each bucket of the next pass waits for.
void Reducer::expect_parameters() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    missing_[b] = is_delayed(buckets_[b]) && options_.delay_until && states_[*options_.delay_until].expected ? 1 : 0;
    for (const auto& slice : buckets_[b].slices) missing_[b] += states_[slice.parameter].expected ? 1 : 0;
  }
}

void Reducer::learn_graph() {
  if (!options_.static_graph || graph_known_) return;
  for (auto& state : states_) state.expected = state.ready;
  graph_known_ = true;
}

void Reducer::record_started(std::size_t bucket) {
  pass_.push_back({.bucket = bucket, .start = std::chrono::steady_clock::now(), .end = {}});
}

// A group runs its operations in their order.
void Reducer::record_ended() {
  const auto now = std::chrono::steady_clock::now();
  for (; ended_ < pass_.size() && works_[ended_]->done(); ++ended_) pass_[ended_].end = now;
}

// Before the first bucket of a pass, that of the last pass is waited for: a group has few operations in progress.
void Reducer::start_ready_buckets() {
  if (next_ == 0 && missing_[0] == 0 && !last_works_.empty()) wait_for(last_works_);
  while (next_ < buckets_.size() && missing_[next_] == 0) {
    const auto start = std::chrono::steady_clock::now();
    if (transfers_) record_started(next_);
    works_.push_back(hook_->start(grad_buckets_[next_]));
    ++next_;
    starting_ += std::chrono::steady_clock::now() - start;
  }
}

std::string Reducer::unready_names() const {
  std::vector<std::string> names;
  for (std::size_t p = 0; p < states_.size(); ++p)
    if (!states_[p].ready && states_[p].expected) names.push_back(parameters_[p].name);
  return first_names(names);
}

void Reducer::finalize() {
  check_usable();
  if (next_ < buckets_.size()) {
    if (!may_leave_out()) {
      failed_ = true;
      throw make_error(Errc::usage,
                       "the backward pass did not reach {}: every parameter has to take part in the loss, or set "
                       "find_unused_parameters",
                       unready_names());
    }
    start_all_buckets();
  }
  learn_graph();
  end_pass();
}

void Reducer::join_pass() {
  check_usable();
  start_all_buckets();
  end_pass();
}

void Reducer::start_all_buckets() {
  for (auto& missing : missing_) missing = 0;
  start_ready_buckets();
}

void Reducer::end_pass() {
  if (options_.find_unused_parameters || (options_.static_graph && !use_known_)) {
    use_known_ = true;
    used_anywhere_ = used_;
    works_.push_back(group_.allreduce(span_of(used_anywhere_), ReduceOp::max));
  }
  device_waits() ? let_device_wait() : wait_for(works_);
  clear_padding();
  used_.assign(used_.size(), 0);
  if (transfers_) transfers_->insert(transfers_->end(), pass_.begin(), pass_.end());
  pass_.clear();
  ended_ = 0;
  next_ = 0;
  expect_parameters();
  for (auto& state : states_) state.ready = false;
}

// Clears what a hook that treats a bucket as a whole may leave there; those for devices leave nothing.
void Reducer::clear_padding() {
  if (device_ != host_memory) return;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const auto& bucket = buckets_[b];
    const auto unit = size_of(bucket.dtype);
    auto* start = static_cast<std::byte*>(memory_[b].get());
    for (std::size_t s = 0; s < bucket.slices.size(); ++s) {
      const auto from = bucket.slices[s].offset + bucket.slices[s].count;
      const auto to = s + 1 < bucket.slices.size() ? bucket.slices[s + 1].offset : bucket.count;
      std::memset(start + from * unit, 0, (to - from) * unit);
    }
  }
}

void Reducer::wait_for(std::vector<WorkPtr>& works) {
  const auto start = std::chrono::steady_clock::now();
  failed_ = true;  // reset below if all goes well
  for (const auto& work : works) {
    work->wait();
    if (transfers_) record_ended();
  }
  works.clear();
  failed_ = false;
  waited_ += std::chrono::steady_clock::now() - start;
}

// A group runs its operations in their order: if any bucket's was cancelled, so was the last one's.
void Reducer::let_device_wait() {
  const auto start = std::chrono::steady_clock::now();
  failed_ = true;  // reset below if all goes well
  for (std::size_t w = 0; w < works_.size(); ++w)
    works_[w]->order(parameters_.front().stream, w + 1 == buckets_.size() ? options_.cancelled : nullptr);
  last_works_ = std::exchange(works_, {});
  failed_ = false;
  waited_ += std::chrono::steady_clock::now() - start;
}

}  // namespace ddprun
