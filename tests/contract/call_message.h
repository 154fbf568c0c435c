#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

#include "worker/comm/operations/call.h"

// The messages between a test and the processes of its ranks through a socket.
namespace ddprun::contract {

enum class Request : std::uint8_t { make, destroy, start, abort, subgroup };

class MessageWriter {
 public:
  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    text_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void put(const std::string& text) {
    put(text.size());
    text_ += text;
  }
  template <class T>
  void put(const std::vector<T>& values) {
    put(values.size());
    for (const auto& each : values) put(each);
  }
  void put_bytes(const void* data, std::size_t bytes) { text_.append(static_cast<const char*>(data), bytes); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

class MessageReader {
 public:
  explicit MessageReader(std::string text) : text_(std::move(text)) {}
  template <class T>
  T get() {
    T value;
    get_bytes(&value, sizeof(value));
    return value;
  }
  std::string get_text() {
    const auto size = get<std::size_t>();
    at_ += size;
    return text_.substr(at_ - size, size);
  }
  template <class T>
  std::vector<T> get_vector() {
    std::vector<T> values(get<std::size_t>());
    for (auto& each : values) each = get<T>();
    return values;
  }
  void get_bytes(void* data, std::size_t bytes) {
    if (bytes > text_.size() - at_) throw std::runtime_error("a message is too short");
    if (bytes > 0) std::memcpy(data, text_.data() + at_, bytes);
    at_ += bytes;
  }

 private:
  std::string text_;
  std::size_t at_ = 0;
};

inline bool write_all(int socket, const char* data, std::size_t bytes) {
  while (bytes > 0) {
    const auto written = ::write(socket, data, bytes);
    if (written <= 0) return false;
    data += written;
    bytes -= static_cast<std::size_t>(written);
  }
  return true;
}
inline bool read_all(int socket, char* data, std::size_t bytes) {
  while (bytes > 0) {
    const auto got = ::read(socket, data, bytes);
    if (got <= 0) return false;
    data += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}
// REQUIRES: one thread at a time.
inline bool send_message(int socket, const std::string& text) {
  const auto size = text.size();
  return write_all(socket, reinterpret_cast<const char*>(&size), sizeof(size)) && write_all(socket, text.data(), size);
}
inline std::optional<std::string> receive_message(int socket) {
  std::size_t size = 0;
  if (!read_all(socket, reinterpret_cast<char*>(&size), sizeof(size))) return std::nullopt;
  std::string text(size, '\0');
  if (!read_all(socket, text.data(), size)) return std::nullopt;
  return text;
}

// The memory of a call, as blocks that do not overlap: spans of one block keep their places relative to each other.
struct Blocks {
  struct Block {
    std::uintptr_t address;
    std::size_t bytes;
  };
  std::vector<Block> blocks;

  void add(ConstSpan span) {
    if (span.bytes() > 0) blocks.push_back({reinterpret_cast<std::uintptr_t>(span.data), span.bytes()});
  }
  void merge() {
    std::sort(blocks.begin(), blocks.end(), [](auto one, auto other) { return one.address < other.address; });
    std::vector<Block> merged;
    for (const auto& each : blocks) {
      if (merged.empty() || each.address > merged.back().address + merged.back().bytes) {
        merged.push_back(each);
      } else {
        auto& last = merged.back();
        last.bytes = std::max(last.address + last.bytes, each.address + each.bytes) - last.address;
      }
    }
    blocks = std::move(merged);
  }
};

inline Blocks blocks_of(const comm::Call& call) {
  Blocks blocks;
  blocks.add(call.input);
  blocks.add(call.output);
  if (call.layout) {
    for (const auto& each : call.layout->inputs) blocks.add(each);
    for (const auto& each : call.layout->outputs) blocks.add(each);
  }
  blocks.merge();
  return blocks;
}

inline std::vector<Span> outputs_of(const comm::Call& call) {
  std::vector<Span> outputs{call.output};
  if (call.layout) outputs.insert(outputs.end(), call.layout->outputs.begin(), call.layout->outputs.end());
  return outputs;
}

inline void put_call(MessageWriter& message, const comm::Call& call) {
  message.put(call.operation);
  message.put(call.input);
  message.put(call.output);
  message.put(call.options.timeout ? call.options.timeout->count() : std::chrono::milliseconds::rep{-1});
  message.put(call.options.blocking);
  message.put(call.layout != nullptr);
  if (call.layout) {
    for (const auto* parts : {call.layout->input_parts.get(), call.layout->output_parts.get()}) {
      message.put(parts != nullptr);
      if (parts) message.put(parts->counts());
    }
    message.put(call.layout->inputs);
    message.put(call.layout->outputs);
  }
  const auto blocks = blocks_of(call);
  message.put(blocks.blocks);
  for (const auto& [address, bytes] : blocks.blocks) message.put_bytes(reinterpret_cast<const void*>(address), bytes);
}

}  // namespace ddprun::contract
