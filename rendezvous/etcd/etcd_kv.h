#pragma once

#include <cstdint>
#include <string>
#include <vector>

// etcd's data model as far as it is used here: values only.
namespace ddprun {

struct EtcdKeyValue {
  std::string key;
  std::string value;
  std::int64_t create_revision = 0;  // of the store when the key came to be
  std::int64_t mod_revision = 0;     // of the store when it was last written; at an erasure: that of the erasure
};

struct EtcdChange {
  EtcdKeyValue entry;
  bool erased = false;
};

// A key's revision, 0 for one that does not exist.
struct EtcdCompare {
  enum class Target { create, mod } target = Target::create;
  std::string key;
  std::int64_t revision = 0;
};

struct EtcdOperation {
  enum class Kind { read, put, erase } kind = Kind::read;
  enum class Lease { none, node, job };  // the node's own, or the one that keeps a job's records
  std::string key;
  std::string value;
  Lease lease = Lease::none;
};

// Atomic: `success` when every comparison holds, else `failure`.
struct EtcdTxn {
  std::vector<EtcdCompare> compare;
  std::vector<EtcdOperation> success;
  std::vector<EtcdOperation> failure;
};

struct EtcdTxnResult {
  bool succeeded = false;
  std::int64_t revision = 0;
  std::vector<EtcdKeyValue> read;
};

}  // namespace ddprun
