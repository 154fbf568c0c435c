#include "worker/trainer/session/source_digest.h"

#include <fstream>
#include <set>

#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::trainer;
using ddprun::testing::TempDir;

namespace {

// Returns digests of the same bytes with one of them changed at each of these places.
std::set<std::string> digests_with_changes(std::vector<std::byte>& bytes, const std::vector<std::size_t>& places,
                                           bool is_whole = false) {
  std::set<std::string> digests{content_digest(bytes, is_whole)};
  for (const auto at : places) {
    bytes[at] ^= std::byte{1};
    digests.insert(content_digest(bytes, is_whole));
    bytes[at] ^= std::byte{1};
  }
  return digests;
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

// Writes zeros that take no space, and a byte.
void write_large(const std::filesystem::path& path, std::uint64_t size, std::uint64_t at, char byte) {
  write(path, "");
  std::filesystem::resize_file(path, size);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
}

}  // namespace

TEST_CASE("any changed byte of up to 64 MiB changes the digest") {
  std::vector<std::byte> bytes(whole_digest_bytes);
  CHECK(digests_with_changes(bytes, {0, 1, bytes.size() / 2 + 3, bytes.size() - 1}).size() == 5);
  CHECK(content_digest({}) == "0 bytes, CRC-32C 00000000");
}

TEST_CASE("of more, 1 MiB is compared: its beginning, its end and evenly between, and of labels all") {
  std::vector<std::byte> bytes(whole_digest_bytes + 5);
  const std::size_t middle_of_blocks = bytes.size() / 30;
  CHECK(digests_with_changes(bytes, {0, 65535, bytes.size() - 1}).size() == 4);
  CHECK(digests_with_changes(bytes, {middle_of_blocks}).size() == 1);
  CHECK(digests_with_changes(bytes, {middle_of_blocks}, true).size() == 2);
  std::size_t found = 0;
  for (std::size_t at = 0; at < bytes.size(); at += 1 << 16) found += digests_with_changes(bytes, {at}).size() - 1;
  CHECK(found == 16);  // a block of 64 KiB has one place that is a multiple of 64 KiB
}

TEST_CASE("files that are read sample by sample differ by name, size and content") {
  const TempDir dir;
  write(dir / "a" / "1.png", "one");
  write(dir / "a" / "2.png", "two");
  write(dir / "b" / "2.png", "2.2");
  const auto item = [&](const std::vector<std::string>& files) {
    data::Source source{.name = "train/a"};
    for (const auto& file : files) source.files.push_back(dir / file);
    return digests_of({source}).at(0);
  };
  const auto usual = item({"a/1.png", "a/2.png"});
  CHECK(usual.name == "train/a");
  CHECK(usual.value.starts_with("2 files, 6 bytes, CRC-32C "));
  CHECK(item({"a/1.png", "a/2.png"}) == usual);
  CHECK(item({"a/1.png", "b/2.png"}) != usual);
  CHECK(item({"a/1.png"}) != usual);
  std::filesystem::rename(dir / "a" / "1.png", dir / "a" / "0.png");
  CHECK(item({"a/0.png", "a/2.png"}) != usual);
  CHECK_THROWS_AS(item({"a/1.png"}), Error);
}

TEST_CASE("of many files, the blocks that are compared are spread over all of them") {
  const TempDir dir;
  const std::uint64_t size = 40 << 20;
  const auto items = [&](std::uint64_t at, char byte) {
    std::vector<data::Source> sources;
    for (const std::string name : {"a", "b", "c"}) {
      write_large(dir / name / "1.png", size, at, byte);
      sources.push_back({.name = name, .files = {dir / name / "1.png"}});
    }
    return digests_of(sources);
  };
  const auto usual = items(0, '\0');
  REQUIRE(usual.size() == 3);
  // There are 256 blocks of 4 KiB, 480 KiB apart, so one begins in each half MiB of a file.
  std::vector<bool> found(3);
  for (std::uint64_t at = 0; at < 512 << 10; at += 4096) {
    const auto changed = items(at, 'x');
    for (std::size_t i = 0; i < 3; ++i) found[i] = found[i] || changed[i] != usual[i];
  }
  CHECK(found == std::vector<bool>(3, true));
}
