#include "worker/data/idx.h"

#include "common/atomic_file.h"
#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/idx_files.h"

using namespace ddprun;
using namespace ddprun::data;
using namespace ddprun::testing;

namespace {

std::string error_of(const std::filesystem::path& path, const IdxOptions& options) {
  try {
    read_idx(path, options);
  } catch (const Error& e) {
    CHECK(e.code() == Errc::io);
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("plain and compressed files read alike") {
  TempDir dir;
  const auto bytes = idx_bytes({2, 3}, "abcdef");
  write_plain(dir / "plain", bytes);
  write_compressed(dir / "compressed", bytes);
  for (const auto* name : {"plain", "compressed"}) {
    const auto array = read_idx(dir / name, {.dimensions = 2});
    CHECK(array.shape == std::vector<std::int64_t>{2, 3});
    CHECK(std::string(array.values.begin(), array.values.end()) == "abcdef");
  }
}

TEST_CASE("every malformed file is an error with file, offset and expectation") {
  struct Case {
    std::string bytes;
    std::string complaint;
  };
  const auto good = idx_bytes({2, 3}, "abcdef");
  auto wrong_type = good;
  wrong_type[2] = '\x0d';
  const std::vector<Case> cases = {
      {"", "offset 0: the file ends within the magic number (expected 4 bytes)"},
      {good.substr(0, 3), "offset 3: the file ends within the magic number (expected 4 bytes)"},
      {"\x01" + good.substr(1), "offset 0: expected the bytes 00 00 of an IDX file, found 01 00"},
      {"PK\3\4", "offset 0: expected the bytes 00 00 of an IDX file, found 50 4b"},
      {wrong_type, "offset 2: expected element type 08 (unsigned byte), found 0d"},
      {idx_bytes({6}, "abcdef"), "offset 3: expected 2 dimensions, found 1"},
      {good.substr(0, 10), "offset 10: the file ends within dimension 2 of 2"},
      {idx_bytes({2, 0}, ""), "offset 8: dimension 2 is 0"},
      {idx_bytes({1000, 3}, "abc"), "offset 4: the header claims 1000 x 3 values, more than the 100 bytes allowed"},
      {idx_bytes({50, 3}, "abc"), "offset 4: the header claims 50 x 3 values, more than the 100 bytes allowed"},
      {idx_bytes({0xffffffff, 0xffffffff}, ""),
       "offset 4: the header claims 4294967295 x 4294967295 values, more than the 100 bytes allowed"},
      {good.substr(0, 15), "offset 15: the file ends here, its header promises 6 bytes of values up to offset 18"},
      {good + "x", "offset 18: expected the end of the file, found more bytes"},
  };
  TempDir dir;
  for (const auto& c : cases) {
    write_plain(dir / "plain", c.bytes);
    CHECK(error_of(dir / "plain", {.dimensions = 2, .max_bytes = 100}) ==
          (dir / "plain").string() + ": " + c.complaint);
    write_compressed(dir / "compressed", c.bytes);
    CHECK(error_of(dir / "compressed", {.dimensions = 2, .max_bytes = 100}) ==
          (dir / "compressed").string() + ": " + c.complaint);
  }
}

TEST_CASE("a compressed stream that is cut or damaged is named as such") {
  TempDir dir;
  std::string values(200000, '\0');
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<char>(i * 2654435761U >> 13);
  write_compressed(dir / "whole", idx_bytes({200000}, values));
  const auto whole = read_whole_file(dir / "whole");
  REQUIRE(read_idx(dir / "whole", {.dimensions = 1}).values.size() == 200000);

  write_plain(dir / "cut", whole.substr(0, whole.size() / 2));
  CHECK_THAT(error_of(dir / "cut", {.dimensions = 1}), Catch::Contains("the compressed stream is cut short"));
  auto wrong_checksum = whole;
  wrong_checksum[wrong_checksum.size() - 6] ^= 1;
  write_plain(dir / "wrong_checksum", wrong_checksum);
  CHECK_THAT(error_of(dir / "wrong_checksum", {.dimensions = 1}),
             Catch::EndsWith(": the file is damaged: its checksum does not match"));
  auto damaged = whole;
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 0x55);
  damaged[damaged.size() - 6] = static_cast<char>(damaged[damaged.size() - 6] ^ 1);  // the check sum, too
  write_plain(dir / "damaged", damaged);
  CHECK_THAT(error_of(dir / "damaged", {.dimensions = 1}), Catch::Contains("is damaged"));
  auto no_block = whole;
  no_block[12] = no_block[13] = '\xff';  // in the tables of the first block
  write_plain(dir / "no_block", no_block);
  CHECK_THAT(error_of(dir / "no_block", {.dimensions = 1}),
             Catch::StartsWith((dir / "no_block").string() + ": offset 0: the compressed data is damaged (invalid "));
}

TEST_CASE("a header that claims too much is told in images and labels") {
  TempDir dir;
  write_plain(dir / "images", idx_bytes({0xffffffff, 28, 28}, ""));
  CHECK(error_of(dir / "images", {.dimensions = 3}) ==
        (dir / "images").string() +
            ": offset 4: the header claims 4294967295 images of 28 x 28 bytes, more than the 4294967296 bytes allowed");
  write_plain(dir / "labels", idx_bytes({0xffffffff}, ""));
  CHECK(error_of(dir / "labels", {.dimensions = 1, .max_bytes = 100}) ==
        (dir / "labels").string() + ": offset 4: the header claims 4294967295 labels, more than the 100 bytes allowed");
}

TEST_CASE("a header that lies about a huge body does not take the memory for it") {
  TempDir dir;
  write_plain(dir / "liar", idx_bytes({4096, 1024, 1000}, "abc"));  // 4 GB
  CHECK_THAT(error_of(dir / "liar", {.dimensions = 3}), Catch::Contains("offset 19: the file ends here"));
}

TEST_CASE("a missing file is an error naming it") {
  try {
    read_idx("/nonexistent/x", {});
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(e.code() == Errc::usage);
    CHECK(e.what() == std::string("cannot open /nonexistent/x: No such file or directory"));
  }
}
