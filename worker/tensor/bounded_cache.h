#pragma once

#include <cstddef>
#include <map>
#include <utility>

namespace ddprun {

// Values made once for their keys. Keys change with the batch, and a stream of ever new ones must not grow without
// bound: a full cache is cleared before it takes another one.
//
// Threads: one thread at a time uses it.
template <class Key, class Value>
class BoundedCache {
 public:
  static constexpr std::size_t capacity = 256;

  // make(): makes the key's value, where the cache does not hold it. The reference stays valid until the next call.
  template <class Make>
  Value& get(const Key& key, Make make) {
    if (const auto found = values_.find(key); found != values_.end()) return found->second;
    if (values_.size() >= capacity) values_.clear();
    return values_.emplace(key, make()).first->second;
  }

 private:
  std::map<Key, Value> values_;
};

}  // namespace ddprun
