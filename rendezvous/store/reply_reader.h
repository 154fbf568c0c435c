#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "common/bytes.h"

namespace ddprun::rendezvous {

// Reads a complete reply of StoreState field by field, in order. REQUIRES: the reply has the fields that are read.
//
// Owns its bytes. Threads: not thread-safe. Errors: none.
class ReplyReader {
 public:
  explicit ReplyReader(std::string bytes) : bytes_(std::move(bytes)) {}

  std::uint8_t u8() { return take<std::uint8_t>(); }
  std::int64_t i64() { return take<std::int64_t>(); }
  // A byte string with its length before it.
  std::string vec() {
    const auto size = take<std::uint64_t>();
    position_ += size;
    return bytes_.substr(position_ - size, size);
  }

 private:
  template <class T>
  T take() {
    position_ += sizeof(T);
    return get_le<T>(bytes_, position_ - sizeof(T));
  }

  const std::string bytes_;
  std::size_t position_ = 0;
};

}  // namespace ddprun::rendezvous
