#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

// Little-endian integers in byte strings, as in the project's wire and file formats.
namespace ddprun {

static_assert(std::endian::native == std::endian::little,
              "the c10d protocol is host-endian; only little-endian is built");

template <class T>
concept TriviallyCopyable = std::is_trivially_copyable_v<T>;

template <TriviallyCopyable T>
void put_le(std::string& out, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  out.append(raw, sizeof(T));
}

// REQUIRES: bytes.size() >= offset + sizeof(T)
template <TriviallyCopyable T>
T get_le(std::string_view bytes, std::size_t offset = 0) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

}  // namespace ddprun
