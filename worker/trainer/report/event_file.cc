#include "worker/trainer/report/event_file.h"

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <unistd.h>

#include <climits>
#include <fmt/format.h>

#include "common/bytes.h"
#include "common/io_error.h"
#include "worker/digest/crc32c.h"

namespace ddprun::trainer {
namespace {

// Numbers of the fields in event.proto and summary.proto.
namespace event_field {
constexpr int wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7;
}
namespace summary_field {
constexpr int value = 1, tag = 1, simple_value = 2;
}
namespace session_field {
constexpr int status = 1;
constexpr std::uint64_t start = 1;
}  // namespace session_field

// Protobuf's types on the wire.
enum class Wire { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>((value & 0x7f) | 0x80));
  out.push_back(static_cast<char>(value));
}

void put_key(std::string& out, int field, Wire wire) {
  put_varint(out, static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire));
}

void put_integer(std::string& out, int field, std::uint64_t value) {
  put_key(out, field, Wire::varint);
  put_varint(out, value);
}

void put_double(std::string& out, int field, double value) {
  put_key(out, field, Wire::fixed64);
  put_le(out, value);
}

void put_float(std::string& out, int field, float value) {
  put_key(out, field, Wire::fixed32);
  put_le(out, value);
}

// Writes a text, or a message in a message.
void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, Wire::bytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event_at(std::int64_t step) {
  std::string event;
  put_double(event, event_field::wall_time,
             std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  put_integer(event, event_field::step, static_cast<std::uint64_t>(step));
  return event;
}

// TFRecord's masking: the CRC of data that contain CRCs would be a poor one.
std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8;
}

std::string record_of(std::string_view data) {
  std::string record;
  put_le(record, static_cast<std::uint64_t>(data.size()));
  put_le(record, masked_crc(record));
  record += data;
  put_le(record, masked_crc(data));
  return record;
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "localhost";
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder, std::int64_t next_step) {
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  for (int number = 0; !fd_; ++number) {
    path_ = folder / fmt::format("events.out.tfevents.{:010}.{}.{}.{}", seconds, host_name(), ::getpid(), number);
    fd_ = UniqueFd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
    if (!fd_ && errno != EEXIST) throw_io_error("open", path_);
  }
  std::string version = event_at(0);
  put_bytes(version, event_field::file_version, "brain.Event:2");
  write(version);
  if (next_step <= 1) return;
  std::string session, begin = event_at(next_step);
  put_integer(session, session_field::status, session_field::start);
  put_bytes(begin, event_field::session_log, session);
  write(begin);
}

void EventFile::add(std::int64_t step, const std::vector<Scalar>& scalars) {
  std::string summary;
  for (const auto& [tag, number] : scalars) {
    std::string value;
    put_bytes(value, summary_field::tag, tag);
    put_float(value, summary_field::simple_value, static_cast<float>(number));
    put_bytes(summary, summary_field::value, value);
  }
  std::string event = event_at(step);
  put_bytes(event, event_field::summary, summary);
  write(event);
}

void EventFile::write(std::string_view event) {
  const std::string record = record_of(event);
  std::string_view rest = record;
  while (!rest.empty()) {
    const ssize_t n = ::write(fd_.get(), rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_io_error("write", path_);
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
}

void EventFile::flush() {
  if (::fsync(fd_.get()) != 0) throw_io_error("flush", path_);
}

}  // namespace ddprun::trainer
