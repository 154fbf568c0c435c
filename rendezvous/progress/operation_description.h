#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun {

// The description of a collective, send or receive, apart from its memory: the fields that ranks have to agree on. It
// has names instead of the communication library's enumerations, so that a program without that library can compare and
// print them. A plain value.
struct OperationDescription {
  std::string kind = "barrier";  // "allreduce", "send", ...
  std::string reduce_op{};       // "sum", ...; empty if the operation does not reduce
  std::string dtype = "uint8";   // the type of the elements
  std::uint64_t count = 0;       // elements, as the operation's caller counts them
  int peer = -1;                 // root, destination or source; -1: none, or any source
  int tag = 0;                   // the tag of a send or receive
  std::uint32_t parts = 0;       // digest of the sizes of unequal parts; 0: the parts are equal
  std::uint32_t spans = 0;       // for a coalesced operation the number of spans plus 1; 0: not coalesced
  std::uint64_t layout = 0;      // coalesced: digest of the types and sizes of its spans; a piece: count of the whole

  bool is_send() const { return kind == "send"; }
  bool is_recv() const { return kind == "recv"; }
  bool point_to_point() const { return is_send() || is_recv(); }
  bool from_any_source() const { return is_recv() && peer < 0; }
  // Returns whether the parts are unequal and each rank knows only its own sizes.
  bool own_parts() const { return kind == "all_to_all" && parts != 0; }
  friend bool operator==(const OperationDescription&, const OperationDescription&) = default;
};

// Returns whether two ranks called the same collective. Unequal parts of all_to_all may differ between ranks.
bool agree(const OperationDescription& one, const OperationDescription& other);

// "allreduce(sum) of 100 float32", "broadcast of 4 int64 from rank 2", "send of 8 uint8 to rank 1 with tag 7",
// "allgatherv of 10 float32 in all", "allreduce_coalesced(sum) of 100 float32 in 3 spans", "barrier",
// "allreduce(sum) of 100 float32, a piece of 1000"
std::string describe(const OperationDescription& operation);

// The description as one line of text, and the inverse, which returns nullopt for any other line.
std::string encode(const OperationDescription& operation);
std::optional<OperationDescription> decode_operation_description(std::string_view line);

}  // namespace ddprun
