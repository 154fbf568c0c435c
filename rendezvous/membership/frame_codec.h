#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/bytes.h"
#include "common/error.h"

// FrameWriter and FrameReader encode and decode the fields of a session frame. They have the same functions, so that a
// template serialize(codec, value) lists the fields of a struct once, in the order of the wire:
//
//   template <class Codec>
//   void serialize(Codec& codec, Field<Codec, StopRequest> stop) {
//     codec.text("run id", stop.run_id, SessionLimits::name);
//     codec.text("who", stop.who, SessionLimits::name);
//   }
//
// Each function takes the name of the field, the field, and its bounds, both inclusive. Integers have the width of
// their type on the wire. The reader throws Errc::protocol naming the field that is out of its bounds or cut off, and
// expects a struct as its default constructor leaves it. The writer cuts texts and lists at their bounds, and checks
// nothing.
namespace ddprun {

template <class Codec, class T>
using Field = std::conditional_t<Codec::reads, T&, const T&>;

class FrameWriter {
 public:
  static constexpr bool reads = false;

  template <std::integral T>
  void integer(const char* /*name*/, T value, std::type_identity_t<T> /*low*/ = {},
               std::type_identity_t<T> /*high*/ = {}) {
    put_le(out_, value);
  }
  void flag(const char* /*name*/, bool value) { put_le(out_, static_cast<std::uint8_t>(value)); }
  void real(const char* /*name*/, double value) { put_le(out_, value); }
  template <class Enum>
  void enumeration(const char* /*name*/, Enum value, Enum /*last*/) {
    put_le(out_, static_cast<std::uint8_t>(value));
  }
  void duration(const char* /*name*/, std::chrono::milliseconds value, std::int64_t /*low*/, std::int64_t /*high*/) {
    put_le(out_, static_cast<std::int64_t>(value.count()));
  }
  void text(const char* /*name*/, std::string_view value, std::size_t limit) {
    value = value.substr(0, limit);
    put_le(out_, static_cast<std::uint32_t>(value.size()));
    out_.append(value);
  }
  // serialize_item(item) is called for each item.
  template <class T, class SerializeItem>
  void list(const char* /*name*/, const std::vector<T>& items, std::size_t /*low*/, std::size_t high,
            const SerializeItem& serialize_item) {
    const std::size_t count = std::min(items.size(), high);
    put_le(out_, static_cast<std::uint32_t>(count));
    for (std::size_t i = 0; i < count; ++i) serialize_item(items[i]);
  }
  // serialize_value(*value) is called if there is a value.
  template <class T, class SerializeValue>
  void optional(const char* name, const std::optional<T>& value, const SerializeValue& serialize_value) {
    flag(name, value.has_value());
    if (value) serialize_value(*value);
  }

  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

class FrameReader {
 public:
  static constexpr bool reads = true;

  // The bytes must outlive it.
  explicit FrameReader(std::string_view bytes) : rest_(bytes) {}

  template <std::integral T>
  void integer(const char* name, T& value, std::type_identity_t<T> low = 0,
               std::type_identity_t<T> high = std::numeric_limits<T>::max()) {
    value = take<T>(name);
    if (value < low || value > high)
      throw make_error(Errc::protocol, "session frame: {} is {}, not from {} to {}", name, value, low, high);
  }
  void flag(const char* name, bool& value) {
    std::uint8_t byte = 0;
    integer(name, byte, 0, 1);
    value = byte != 0;
  }
  void real(const char* name, double& value) { value = take<double>(name); }
  template <class Enum>
  void enumeration(const char* name, Enum& value, Enum last) {
    std::uint8_t byte = 0;
    integer(name, byte, 0, static_cast<std::uint8_t>(last));
    value = static_cast<Enum>(byte);
  }
  void duration(const char* name, std::chrono::milliseconds& value, std::int64_t low, std::int64_t high) {
    std::int64_t count = 0;
    integer(name, count, low, high);
    value = std::chrono::milliseconds(count);
  }
  void text(const char* name, std::string& value, std::size_t limit) {
    const std::size_t size = size_of(name, 0, limit);
    if (rest_.size() < size) fail_cut_off(name);
    value = rest_.substr(0, size);
    rest_.remove_prefix(size);
  }
  template <class T, class SerializeItem>
  void list(const char* name, std::vector<T>& items, std::size_t low, std::size_t high,
            const SerializeItem& serialize_item) {
    const std::size_t count = size_of(name, low, high);
    for (std::size_t i = 0; i < count; ++i)
      serialize_item(items.emplace_back());  // no reserve(): the count is not trusted
  }
  template <class T, class SerializeValue>
  void optional(const char* name, std::optional<T>& value, const SerializeValue& serialize_value) {
    bool present = false;
    flag(name, present);
    if (present) serialize_value(value.emplace());
  }

  // Throws if there are further bytes.
  void finish() const {
    if (!rest_.empty()) throw make_error(Errc::protocol, "session frame: {} bytes after its end", rest_.size());
  }

 private:
  [[noreturn]] static void fail_cut_off(const char* name) {
    throw make_error(Errc::protocol, "session frame ends within {}", name);
  }
  template <class T>
  T take(const char* name) {
    if (rest_.size() < sizeof(T)) fail_cut_off(name);
    const T value = get_le<T>(rest_);
    rest_.remove_prefix(sizeof(T));
    return value;
  }
  std::size_t size_of(const char* name, std::size_t low, std::size_t high) {
    std::uint32_t size = 0;
    integer(name, size, static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(high));
    return size;
  }

  std::string_view rest_;
};

}  // namespace ddprun
