#include "rendezvous/store/store.h"

#include "common/error.h"

namespace ddprun {
namespace {

using Result = std::optional<std::string>;

// Makes one call after the other.
struct Caller {
  Store& store;
  Deadline deadline;

  Result operator()(const SetCall& call) const {
    store.set(call.key, call.value, deadline);
    return std::nullopt;
  }
  Result operator()(const AppendCall& call) const {
    store.append(call.key, call.suffix, deadline);
    return std::nullopt;
  }
  Result operator()(const AddCall& call) const { return std::to_string(store.add(call.key, call.delta, deadline)); }
  Result operator()(const CompareSetCall& call) const {
    return store.compare_set(call.key, call.expected, call.desired, deadline);
  }
  Result operator()(const FindCall& call) const {
    return store.check({call.key}, deadline) ? Result(store.get(call.key, deadline)) : std::nullopt;
  }
  Result operator()(const SetWillCall& call) const {
    try {
      store.set_will(call.key, call.value, deadline);
    } catch (const Error& error) {
      if (error.code() != Errc::unsupported) throw;
    }
    return std::nullopt;
  }
};

}  // namespace

StoreResults Store::execute(const std::vector<StoreCall>& calls, Deadline deadline) {
  StoreResults results;
  for (const auto& call : calls) results.push_back(std::visit(Caller{*this, deadline}, call));
  return results;
}

std::string Store::wait_get(const std::string& key, Deadline deadline) {
  wait({key}, deadline);
  return get(key, deadline);
}

}  // namespace ddprun
