// A node's server of PMI-1 with arbitrary bytes from its ranks: each reply is one line, and goes to a rank that
// exists.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "launcher/mpi/pmi_state.h"

using namespace ddprun;

namespace {

constexpr int ranks = 3;

void require(bool condition) {
  if (!condition) std::abort();
}

void check(PmiState& pmi, const PmiActions& actions) {
  for (const auto& [local_rank, text] : actions.replies) {
    require(local_rank >= 0 && local_rank < ranks);
    require(text.starts_with("cmd=") && text.find('\n') == text.size() - 1);
  }
  if (!actions.fence) return;
  require(decode_pmi_pairs(encode_pmi_pairs(actions.fence->pairs)) == actions.fence->pairs);
  check(pmi, pmi.fence_done({{"other", "1"}}));
}

}  // namespace

// The input consists of pieces of "rank, length, bytes".
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  decode_pmi_pairs(bytes);
  PmiState pmi({.name = "job", .process_mapping = pmi_process_mapping({ranks}), .size = ranks, .local_size = ranks});
  while (bytes.size() > 2) {
    const int rank = static_cast<std::uint8_t>(bytes[0]) % ranks;
    const std::size_t length = static_cast<std::uint8_t>(bytes[1]);
    check(pmi, pmi.received(rank, bytes.substr(2, length)));
    pmi.complaint(rank);
    bytes.remove_prefix(std::min(bytes.size(), 2 + length));
  }
  return 0;
}
