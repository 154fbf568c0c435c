#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "common/atomic_file.h"
#include "common/bytes.h"

// A reader of TensorBoard's files that shares no code with their writer.
namespace ddprun::testing {

inline std::uint32_t crc_bit_by_bit(std::string_view bytes) {
  std::uint32_t value = 0xffffffff;
  for (const char c : bytes) {
    value ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) value = (value & 1) != 0 ? (value >> 1) ^ 0x82f63b78 : value >> 1;
  }
  return ~value;
}

inline void check_crc(std::string_view bytes, std::uint32_t masked) {
  const std::uint32_t rotated = masked - 0xa282ead8;
  if (((rotated >> 17) | (rotated << 15)) != crc_bit_by_bit(bytes)) throw std::runtime_error("a wrong CRC");
}

// A process that was killed may have written a part of the last record; TensorBoard waits for the rest.
inline std::vector<std::string_view> records_of(std::string_view file) {
  std::vector<std::string_view> records;
  while (file.size() >= 12) {
    const auto length = get_le<std::uint64_t>(file.substr(0, 8));
    if (file.size() < 16 + length) break;
    check_crc(file.substr(0, 8), get_le<std::uint32_t>(file, 8));
    records.push_back(file.substr(12, length));
    check_crc(records.back(), get_le<std::uint32_t>(file, 12 + length));
    file.remove_prefix(16 + length);
  }
  return records;
}

// A field of a message in protobuf's encoding.
struct Field {
  std::uint64_t integer = 0;
  std::string_view bytes;  // also those of a fixed number
};

inline std::uint64_t take_varint(std::string_view& message) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(message.at(0));
    message.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

inline std::multimap<int, Field> fields_of(std::string_view message) {
  std::multimap<int, Field> fields;
  while (!message.empty()) {
    const std::uint64_t key = take_varint(message);
    Field field;
    if ((key & 7) == 0) {
      field.integer = take_varint(message);
    } else {
      const std::size_t size = (key & 7) == 1 ? 8 : (key & 7) == 5 ? 4 : take_varint(message);
      field.bytes = message.substr(0, size);
      message.remove_prefix(size);
    }
    fields.emplace(static_cast<int>(key >> 3), field);
  }
  return fields;
}

// One record, with its content.
struct Event {
  std::int64_t step = 0;
  double wall_time = 0;
  std::string version;
  bool starts_session = false;
  std::map<std::string, float> scalars;
};

inline std::vector<Event> events_in(const std::filesystem::path& path) {
  const std::string file = read_whole_file(path);
  std::vector<Event> events;
  for (const auto record : records_of(file)) {
    Event event;
    for (const auto& [number, field] : fields_of(record)) {
      if (number == 1) event.wall_time = get_le<double>(field.bytes);
      if (number == 2) event.step = static_cast<std::int64_t>(field.integer);
      if (number == 3) event.version = field.bytes;
      if (number == 7) event.starts_session = fields_of(field.bytes).find(1)->second.integer == 1;
      if (number != 5) continue;
      for (const auto& [one, value] : fields_of(field.bytes)) {
        const auto parts = fields_of(value.bytes);
        event.scalars[std::string(parts.find(1)->second.bytes)] = get_le<float>(parts.find(2)->second.bytes);
      }
    }
    events.push_back(std::move(event));
  }
  return events;
}

inline std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

}  // namespace ddprun::testing
