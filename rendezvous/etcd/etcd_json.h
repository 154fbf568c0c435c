#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "rendezvous/etcd/etcd_kv.h"

// The JSON of etcd's HTTP gateway. Keys and values are base64, 64-bit integers are strings, and zero values are
// omitted. Readers throw Errc::protocol naming the field.
namespace ddprun {

std::string base64_encode(std::string_view bytes);
// Returns nullopt if text is not base64.
std::optional<std::string> base64_decode(std::string_view text);

// The first key after all keys that begin with prefix. REQUIRES: its last byte is below 0xff.
std::string end_of_prefix(std::string prefix);

struct EtcdLeases {
  std::int64_t node = 0;
  std::int64_t job = 0;
};
boost::json::object txn_request(const EtcdTxn& txn, const EtcdLeases& leases);
boost::json::object range_request(const std::string& prefix);
boost::json::object watch_request(const std::string& prefix, std::int64_t from_revision);

EtcdTxnResult read_txn_answer(const boost::json::value& answer);
struct EtcdRange {
  std::int64_t revision = 0;
  std::vector<EtcdKeyValue> entries;
};
EtcdRange read_range_answer(const boost::json::value& answer);

struct EtcdWatchAnswer {
  std::vector<EtcdChange> changes;
  bool canceled = false;  // the watch has ended: compacted, or the server has lost its leader
};
EtcdWatchAnswer read_watch_answer(const boost::json::value& line);

// A number, or a string that holds one; 0 if the field is missing.
std::int64_t integer_at(const boost::json::value& object, std::string_view field);

}  // namespace ddprun
