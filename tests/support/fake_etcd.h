#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "rendezvous/etcd/etcd_json.h"
#include "rendezvous/etcd/etcd_kv.h"

namespace ddprun::testing {

// etcd's store in memory: revisions, transactions, leases, and the events of a watch. Without a clock: a lease ends
// when the test ends it.
class FakeEtcd {
 public:
  struct LeaseGone : std::runtime_error {
    LeaseGone() : std::runtime_error("requested lease not found") {}
  };
  struct Recorded {
    std::int64_t revision = 0;
    EtcdChange change;
  };

  std::int64_t grant() {
    leases_.insert(++last_lease_);
    return last_lease_;
  }
  bool alive(std::int64_t lease) const { return leases_.contains(lease); }

  // Removes all keys of the lease in one revision.
  void end_lease(std::int64_t lease) {
    if (leases_.erase(lease) == 0) return;
    std::vector<std::string> keys;
    for (const auto& [key, entry] : entries_)
      if (entry.lease == lease) keys.push_back(key);
    if (!keys.empty()) ++revision_;
    for (const auto& key : keys) erase(key);
  }

  EtcdTxnResult apply(const EtcdTxn& txn, std::int64_t node_lease, std::int64_t job_lease) {
    EtcdTxnResult result{.succeeded = true};
    for (const auto& compare : txn.compare) {
      const auto entry = entries_.find(compare.key);
      const auto& kv = entry == entries_.end() ? EtcdKeyValue{} : entry->second.kv;
      const bool create = compare.target == EtcdCompare::Target::create;
      result.succeeded &= (create ? kv.create_revision : kv.mod_revision) == compare.revision;
    }
    const auto& operations = result.succeeded ? txn.success : txn.failure;
    using Kind = EtcdOperation::Kind;
    bool writes = false;
    for (const auto& one : operations) {
      if (one.kind == Kind::put && one.lease == EtcdOperation::Lease::node && !alive(node_lease)) throw LeaseGone();
      writes |= one.kind == Kind::put || (one.kind == Kind::erase && entries_.contains(one.key));
    }
    if (writes) ++revision_;
    for (const auto& one : operations) {
      if (one.kind == Kind::put)
        put(one.key, one.value, one.lease == EtcdOperation::Lease::node ? node_lease : job_lease);
      if (one.kind == Kind::erase) erase(one.key);
      if (one.kind == Kind::read && entries_.contains(one.key)) result.read.push_back(entries_.at(one.key).kv);
    }
    result.revision = revision_;
    return result;
  }

  std::vector<EtcdKeyValue> range(const std::string& prefix) const {
    std::vector<EtcdKeyValue> found;
    for (const auto& [key, entry] : entries_)
      if (key.starts_with(prefix)) found.push_back(entry.kv);
    return found;
  }
  const EtcdKeyValue* find(const std::string& key) const {
    const auto entry = entries_.find(key);
    return entry == entries_.end() ? nullptr : &entry->second.kv;
  }
  std::int64_t revision() const { return revision_; }
  const std::vector<Recorded>& history() const { return history_; }

  // Called for each put, before it takes effect.
  std::function<void(const FakeEtcd&, const std::string& key, const std::string& value)> on_put;

 private:
  struct Entry {
    EtcdKeyValue kv;
    std::int64_t lease = 0;
  };

  void put(const std::string& key, const std::string& value, std::int64_t lease) {
    if (on_put) on_put(*this, key, value);
    Entry& entry = entries_[key];
    if (entry.kv.create_revision == 0) entry.kv.create_revision = revision_;
    entry.kv.key = key;
    entry.kv.value = value;
    entry.kv.mod_revision = revision_;
    entry.lease = lease;
    history_.push_back({revision_, {entry.kv, false}});
  }
  void erase(const std::string& key) {
    if (entries_.erase(key) == 0) return;
    history_.push_back({revision_, {EtcdKeyValue{.key = key, .mod_revision = revision_}, true}});
  }

  std::map<std::string, Entry> entries_;
  std::set<std::int64_t> leases_;
  std::int64_t last_lease_ = 0;
  std::int64_t revision_ = 1;
  std::vector<Recorded> history_;
};

}  // namespace ddprun::testing
