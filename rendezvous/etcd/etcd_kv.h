#pragma once

#include <cstdint>
#include <string>
#include <vector>

// The part of etcd's data model that is used here, as values.
namespace ddprun {

struct EtcdKeyValue {
  std::string key;
  std::string value;
  std::int64_t create_revision = 0;  // revision of the store at which the key was created
  std::int64_t mod_revision = 0;     // revision at which it was last written or erased
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
  enum class Lease { none, node, job };  // node: the lease of this node; job: that of the job's records
  std::string key;
  std::string value;
  Lease lease = Lease::none;
};

// An atomic transaction: `success` if every comparison holds, otherwise `failure`.
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
