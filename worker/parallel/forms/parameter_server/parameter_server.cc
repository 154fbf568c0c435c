#include "worker/parallel/forms/parameter_server/parameter_server.h"

#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "common/error.h"
#include "worker/comm/subgroups.h"
#include "worker/parallel/forms/parameter_server/client.h"
#include "worker/parallel/forms/parameter_server/server.h"
#include "worker/parallel/group_tensors.h"
#include "worker/parallel/sharding/flat_parameters.h"
#include "worker/reducer/bucketing.h"
#include "worker/reducer/shards.h"

namespace ddprun {
namespace {

using NamedVariables = std::vector<std::pair<std::string, Variable>>;

NamedVariables trainable(const nn::Module& model) {
  auto parameters = model.named_parameters();
  std::erase_if(parameters, [](const auto& each) { return !each.second.requires_grad(); });
  return parameters;
}

std::vector<Bucket> one_bucket(const NamedVariables& parameters) {
  constexpr auto no_limit = std::numeric_limits<std::size_t>::max();
  auto buckets = plan_buckets(references(parameters), {.first_bytes = no_limit, .bytes = no_limit});
  if (buckets.size() != 1)
    throw make_error(Errc::unsupported, "servers of parameters need parameters of one type, there are {}",
                     buckets.size());
  return buckets;
}

ParameterServerOptions checked(const ParameterServerOptions& options, int ranks) {
  if (options.servers < 1 || options.servers >= ranks)
    throw make_error(Errc::usage, "{} servers of parameters leave no worker or no server: there are {} ranks",
                     options.servers, ranks);
  if (options.staleness < 0) throw make_error(Errc::usage, "a staleness of {} updates", options.staleness);
  return options;
}

std::vector<int> range(int begin, int end) {
  std::vector<int> numbers(static_cast<std::size_t>(end - begin));
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

// A rank that leaves a round early has to break the group: no rank waits only for it, so none would notice.
class AbortUnlessDone {
 public:
  explicit AbortUnlessDone(ProcessGroup& group) : group_(&group) {}
  ~AbortUnlessDone() {
    if (group_) group_->abort("a round of a parameter server ended with an error");
  }
  AbortUnlessDone(const AbortUnlessDone&) = delete;
  AbortUnlessDone& operator=(const AbortUnlessDone&) = delete;
  void done() { group_ = nullptr; }

 private:
  ProcessGroup* group_;
};

Span part_of(const Span& whole, const Shard& part) {
  return {static_cast<std::byte*>(whole.data) + part.begin * size_of(whole.dtype), part.count(), whole.dtype};
}

}  // namespace

struct ParameterServer::State {
  State(nn::Module& trained, ProcessGroup& all, const ParameterServerOptions& given)
      : model(trained),
        group(all),
        options(checked(given, all.size())),
        parameters(trainable(trained)),
        buckets(one_bucket(parameters)),
        flat(std::vector(buckets.size(), &all), parameters, buckets),
        gradients(std::make_shared<RegisteredBuffer>(all.allocate(buckets[0].count * size_of(buckets[0].dtype)))),
        peers(split(all, is_server() ? 0 : 1, all.rank())) {
    distribute_model();
    is_server() ? make_server() : make_client();
  }

  bool is_server() const { return group.rank() < options.servers; }
  Span values() const { return flat.memory(0); }
  Span gradient() const { return {gradients->data(), buckets[0].count, buckets[0].dtype}; }
  // The tensor keeps the memory.
  Tensor gradient_at(std::size_t begin, const Shape& shape, Device device = {}) const {
    const std::shared_ptr<void> place(gradients, gradients->data() + begin * size_of(buckets[0].dtype));
    return Tensor::wrap(place.get(), shape, buckets[0].dtype, place, device);
  }
  Shard range_of(int rank) const { return shard_of(buckets[0].count, rank, options.servers); }  // that of a server

  void make_server() {
    const Shard own = range_of(group.rank());
    sharded = {.parameters = parameters,
               .buckets = buckets,
               .groups = {peers.get()},
               .values = {flat.part(0, own)},
               .gradients = {gradient_at(own.begin, {static_cast<std::int64_t>(own.count())})}};
    server.emplace(group, range(options.servers, group.size()), part_of(values(), own), part_of(gradient(), own),
                   options.staleness);
  }

  // Gradients are laid out like the parameters, so that each server's part is one message.
  void make_client() {
    for (const BucketSlice& slice : buckets[0].slices) {
      Variable& parameter = parameters[slice.parameter].second;
      parameter.set_grad_storage(gradient_at(slice.offset, parameter.shape(), parameter.device()));
    }
    std::vector<parameter_server::ServerRange> servers;
    for (int s = 0; s < options.servers; ++s)
      servers.push_back({s, part_of(values(), range_of(s)), part_of(gradient(), range_of(s))});
    client.emplace(group, std::move(servers));
  }

  void values_changed() {
    for (const auto& [name, parameter] : parameters) parameter.value().storage()->bump_version();
  }

  void compute_all(const std::function<void(std::int64_t)>& compute) {
    while (const auto ticket = client->read()) {
      values_changed();
      model.zero_grad();
      compute(*ticket);
      for (const auto& [name, parameter] : parameters) parameter.grad();  // zero if the pass did not reach it
      client->push();
    }
  }

  // Copies each server's range to all ranks, and the first worker's buffers.
  void share_model() {
    Counts counts(static_cast<std::size_t>(group.size()));
    for (int s = 0; s < options.servers; ++s) counts[static_cast<std::size_t>(s)] = range_of(s).count();
    const Span own = is_server() ? part_of(values(), range_of(group.rank())) : Span{nullptr, 0, values().dtype};
    group.allgatherv(own, values(), counts, {.blocking = true});
    values_changed();
    if (const auto buffers = references(model.named_buffers()); !buffers.empty())
      broadcast(group, buffers, options.servers);
  }

  void distribute_model() {
    auto all = references(model.named_parameters());
    for (auto& buffer : references(model.named_buffers())) all.push_back(std::move(buffer));
    broadcast(group, all);
    for (const auto& [name, parameter] : model.named_parameters()) parameter.value().storage()->bump_version();
  }

  nn::Module& model;
  ProcessGroup& group;
  const ParameterServerOptions options;
  NamedVariables parameters;
  const std::vector<Bucket> buckets;
  FlatParameters flat;
  std::shared_ptr<RegisteredBuffer> gradients;
  const std::unique_ptr<ProcessGroup> peers;
  ShardedBuckets sharded;
  std::optional<parameter_server::Server> server;
  std::optional<parameter_server::Client> client;
};

ParameterServer::ParameterServer(nn::Module& model, ProcessGroup& group, const ParameterServerOptions& options) {
  checked(options, group.size());
  check_same_model(group, references(model.named_parameters()));
  state_ = std::make_unique<State>(model, group, options);
}

ParameterServer::~ParameterServer() = default;

bool ParameterServer::is_server() const {
  return state_->is_server();
}

const ShardedBuckets& ParameterServer::sharded_buckets() const {
  return state_->sharded;
}

ProcessGroup& ParameterServer::peers() const {
  return *state_->peers;
}

void ParameterServer::round(std::int64_t updates, const std::function<void(std::int64_t ticket)>& compute,
                            const std::function<void()>& update) {
  AbortUnlessDone abort(state_->group);
  if (state_->server)
    state_->server->serve(state_->group.rank() == 0 ? std::optional(updates) : std::nullopt, update);
  else
    state_->compute_all(compute);
  state_->share_model();
  abort.done();
}

void ParameterServer::distribute_model() {
  state_->distribute_model();
}

const std::vector<std::int64_t>& ParameterServer::staleness() const {
  static const std::vector<std::int64_t> none;
  return state_->server ? state_->server->gate().histogram() : none;
}

}  // namespace ddprun
