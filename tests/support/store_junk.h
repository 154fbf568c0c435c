#pragma once

#include <random>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "rendezvous/store/protocol.h"

namespace ddprun::testing {

// Messages for a store, generated from a seed: valid requests over few keys, such requests with changed, missing or
// inserted bytes, and random bytes.
class StoreJunk {
 public:
  explicit StoreJunk(std::uint32_t seed) : random_(seed) {}

  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }
  bool one_in(std::uint32_t n) { return below(n) == 0; }

  // Most messages are valid, so that connections stay open.
  std::string message() {
    if (one_in(50)) return noise(1 + below(64));
    auto bytes = request();
    if (one_in(10)) mutate(bytes);
    return bytes;
  }

  std::string request() {
    using namespace rendezvous;
    const auto key = name(), value = text();
    const std::string other = name();
    const std::string_view keys[] = {key, other, key};
    const std::span<const std::string_view> some(keys, 1 + below(3));
    const KeyValueView pairs[] = {{key, value}, {other, key}};
    switch (below(23)) {
      case 0:
        return encode(SetRequest{key, value});
      case 1:
        return encode(CompareSetRequest{key, one_in(2) ? "" : value, other});
      case 2:
        return encode(GetRequest{key});
      case 3:
        return encode(AddRequest{key, static_cast<std::int64_t>(below(9)) - 4});
      case 4:
        return encode(CheckRequest{some});
      case 5:
        return encode(WaitRequest{some});
      case 6:
        return encode(NumKeysRequest{});
      case 7:
      case 8:
        return encode(DeleteKeyRequest{key});
      case 9:
        return encode(AppendRequest{key, value});
      case 10:
        return encode(MultiGetRequest{some});
      case 11:
        return encode(MultiSetRequest{pairs});
      case 12:
        return encode(CancelWaitRequest{});
      case 13:
        return encode(PingRequest{below(1u << 31)});
      case 14:
        return encode(QueuePushRequest{key, value});
      case 15:
      case 16:
        return encode(QueuePopRequest{key});
      case 17:
        return encode(QueueLengthRequest{key});
      case 18:
        return encode(one_in(8) ? Request(ListKeysRequest{}) : Request(ClearLastWillRequest{}));
      case 19:
        return encode(BarrierRequest{key, below(4)});
      case 20:
        return encode(LastWillRequest{key, value});
      case 21:
        return encode(WaitMultiGetRequest{some});
      default:
        return encode(WaitGetRequest{key});
    }
  }

  std::string noise(std::size_t size) {
    std::string bytes(size, '\0');
    for (auto& byte : bytes) byte = static_cast<char>(below(256));
    return bytes;
  }

 private:
  std::string name() { return "/" + std::to_string(below(12)); }
  std::string text() { return one_in(2) ? std::to_string(below(100)) : std::string(below(40), 'v'); }

  void mutate(std::string& bytes) {
    const auto at = below(static_cast<std::uint32_t>(bytes.size()));
    switch (below(5)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(below(256));
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.insert(at, noise(1 + below(9)));
        break;
      default:
        bytes.erase(at, 1 + below(9));
        break;
    }
  }

  std::mt19937 random_;
};

}  // namespace ddprun::testing
