#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/comm/process_group.h"

// Items that all ranks of a process group must have in common, by name, in the same order at all of them.
namespace ddprun::trainer {

struct SharedItem {
  std::string name;   // "optim.lr", "train-labels-idx1-ubyte"
  std::string value;  // "0.1", "60000 bytes, CRC-32C 1f2e3d4c"
  friend bool operator==(const SharedItem&, const SharedItem&) = default;
};
using SharedItems = std::vector<SharedItem>;

// The first item in which two ranks differ. A value is missing if a rank does not have the item.
struct Difference {
  std::string name;
  std::optional<std::string> one;
  std::optional<std::string> other;
  friend bool operator==(const Difference&, const Difference&) = default;
};
std::optional<Difference> first_difference(const SharedItems& one, const SharedItems& other);

// A rank's items with the name of its host, as it sends them.
struct HostItems {
  std::string host;
  SharedItems items;
  friend bool operator==(const HostItems&, const HostItems&) = default;
};
std::string encode(const HostItems& items);
// Throws Errc::protocol for a text that encode() does not return.
HostItems decode_host_items(std::string_view text);

// Compares the items of all ranks. Throws Errc::usage at every rank in one line: the first item in which a rank differs
// from rank 0, with both values, ranks and hosts. Costs one allgather of 64 bytes if there is no difference.
// Collective.
void require_same_items(const SharedItems& own, ProcessGroup& group);

}  // namespace ddprun::trainer
