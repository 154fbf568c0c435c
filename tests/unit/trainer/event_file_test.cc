// metrics.tensorboard, read by a reader of its own.
#include "ddprun/worker/trainer/report/event_file.h"

#include <algorithm>
#include <map>
#include <regex>

#include "ddprun/common/bytes.h"
#include "ddprun/common/error.h"
#include "tests/numerics/training_job.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/records.h"

using namespace ddprun;
using namespace ddprun::testing;
using trainer::EventFile;

namespace {

std::uint32_t crc_bit_by_bit(std::string_view bytes) {
  std::uint32_t value = 0xffffffff;
  for (const char c : bytes) {
    value ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) value = (value & 1) != 0 ? (value >> 1) ^ 0x82f63b78 : value >> 1;
  }
  return ~value;
}

void check_crc(std::string_view bytes, std::uint32_t masked) {
  const std::uint32_t rotated = masked - 0xa282ead8;
  if (((rotated >> 17) | (rotated << 15)) != crc_bit_by_bit(bytes)) throw std::runtime_error("a wrong CRC");
}

std::vector<std::string_view> records_of(std::string_view file) {
  std::vector<std::string_view> records;
  while (!file.empty()) {
    const auto length = get_le<std::uint64_t>(file.substr(0, 8));
    check_crc(file.substr(0, 8), get_le<std::uint32_t>(file, 8));
    records.push_back(file.substr(12, length));
    check_crc(records.back(), get_le<std::uint32_t>(file, 12 + length));
    file.remove_prefix(16 + length);
  }
  return records;
}

struct Field {
  std::uint64_t integer = 0;
  std::string_view bytes;  // also of a fixed number
};

std::uint64_t take_varint(std::string_view& message) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(message.at(0));
    message.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

std::multimap<int, Field> fields_of(std::string_view message) {
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

struct Event {
  std::int64_t step = 0;
  double wall_time = 0;
  std::string version;
  bool starts_session = false;
  std::map<std::string, float> scalars;
};

std::vector<Event> events_in(const std::filesystem::path& path) {
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

std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

}  // namespace

TEST_CASE("an event file has a version, and the scalars that were added") {
  const TempDir dir;
  EventFile file(dir / "new/logs", 1);
  file.add(1, {{"train/loss", 2.5}, {"a tag of more than 127 bytes " + std::string(200, 'x'), -1e30}});
  file.add(300, {{"train/loss", 0.125}});
  file.flush();
  CHECK(
      std::regex_match(file.path().filename().string(), std::regex(R"(events\.out\.tfevents\.\d{10}\.[^/]+\.\d+\.0)")));
  const auto events = events_in(file.path());
  REQUIRE(events.size() == 3);
  CHECK(events[0].version == "brain.Event:2");
  CHECK(events[0].wall_time > 1.6e9);
  CHECK(!events[0].starts_session);
  CHECK(events[1].step == 1);
  CHECK(events[1].scalars.at("train/loss") == 2.5F);
  CHECK(events[1].scalars.size() == 2);
  CHECK(events[1].scalars.rbegin()->second == 2.5F);
  CHECK(events[1].scalars.begin()->second == -1e30F);
  CHECK(events[2].step == 300);
  CHECK(events[2].scalars == std::map<std::string, float>{{"train/loss", 0.125F}});
}

TEST_CASE("files of one second have names of their own, and a folder that cannot be is named") {
  const TempDir dir;
  const EventFile first(dir.path(), 1), second(dir.path(), 7);
  CHECK(first.path() != second.path());
  const auto events = events_in(second.path());
  REQUIRE(events.size() == 2);
  CHECK(events[1].starts_session);
  CHECK(events[1].step == 7);
  CHECK_THROWS_WITH(EventFile(first.path() / "below", 1), Catch::Contains("cannot open " + first.path().string()));
}

TEST_CASE("a job's scalars are those of its metrics, one file for each time that it runs") {
  const TempDir dir;
  const auto run = [&](int steps) {
    TrainingJob(
        "[model]\nname = linear\n[data]\nname = digits\nsamples = 96\ntest_samples = 32\n"
        "[train]\nbatch_size = 8\nepochs = 3\nmax_steps = " +
        std::to_string(steps) + "\n[optim]\nclip_norm = 1\n[checkpoint]\ndir = " + (dir / "c").string() +
        "\n[metrics]\nfile = " + (dir / "m").string() + "\ntensorboard = " + (dir / "logs").string() + "\n")
        .run(2);
  };
  run(7);
  REQUIRE(files_in(dir / "logs").size() == 1);
  const auto records = step_records(dir / "m");
  const auto first = files_in(dir / "logs")[0];
  const auto events = events_in(first);
  std::size_t steps = 0, evaluations = 0;
  for (const auto& event : events) {
    if (event.scalars.contains("eval/accuracy")) ++evaluations;
    if (!event.scalars.contains("train/loss")) continue;
    const auto& record = records.at(steps++);
    CHECK(event.step == record.at("step").as_int64());
    for (const auto* key : {"loss", "lr", "grad_norm"})
      CHECK(event.scalars.at(std::string("train/") + key) == static_cast<float>(record.at(key).to_number<double>()));
    CHECK(event.scalars.at("train/samples_per_s") > 0);
  }
  CHECK(steps == 7);
  CHECK(evaluations == 2);  // after the first epoch, of 6 steps, and at the end
  run(10);
  auto files = files_in(dir / "logs");
  REQUIRE(files.size() == 2);
  std::erase(files, first);
  const auto more = events_in(files[0]);
  CHECK(more[1].starts_session);
  CHECK(more[1].step == 8);
  CHECK(more[2].step == 8);
  CHECK(more.back().step == 10);
}
