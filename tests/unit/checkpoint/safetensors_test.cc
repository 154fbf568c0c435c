#include "worker/checkpoint/safetensors.h"

#include <sstream>

#include "common/atomic_file.h"
#include "common/bytes.h"
#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::checkpoint;
using ddprun::testing::TempDir;

namespace {

template <class T>
TensorView view(std::string name, std::vector<std::int64_t> shape, const std::vector<T>& values) {
  return {std::move(name), dtype_of<T>, std::move(shape), std::as_bytes(std::span(values))};
}

std::string written(const TempDir& dir, const std::vector<TensorView>& tensors, const Metadata& metadata = {}) {
  FileWriter out(dir / "file");
  write_safetensors(out, tensors, metadata);
  out.finish();
  return read_whole_file(dir / "file");
}

// Returns the bytes of the worked example: the text before a run of blanks in each line of its block.
std::string example_of_format_page() {
  const auto page = read_whole_file(DDPRUN_FORMAT_PAGE);
  auto begin = page.find("```\n", page.find("### Example")) + 4;
  std::istringstream lines(page.substr(begin, page.find("```", begin) - begin));
  std::string bytes;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find("   ")));
    for (std::string word; words >> word;) bytes += static_cast<char>(std::stoi(word, nullptr, 16));
  }
  return bytes;
}

std::string file_with_header(const std::string& header, const std::string& data) {
  std::string bytes;
  put_le(bytes, static_cast<std::uint64_t>(header.size()));
  return bytes + header + data;
}

std::string error_of(const TempDir& dir, const std::string& bytes) {
  write_file_atomically(dir / "bad", bytes);
  try {
    SafetensorsFile file(dir / "bad");
  } catch (const Error& e) {
    CHECK(e.code() == Errc::io);
    const std::string text = e.what();
    const auto name = (dir / "bad").string() + ": ";
    CHECK(text.starts_with(name));
    return text.substr(name.size());
  }
  return "no error";
}

}  // namespace

TEST_CASE("the example of the format page is what the writer writes and the reader reads") {
  TempDir dir;
  const std::vector<float> values{1.0F, -2.0F};
  const auto example = example_of_format_page();
  REQUIRE(example.size() == 72);
  CHECK(written(dir, {view("a", {2}, values)}) == example);

  const SafetensorsFile file(dir / "file");
  REQUIRE(file.tensors().size() == 1);
  const auto* a = file.find("a");
  REQUIRE(a);
  CHECK(a->shape == std::vector<std::int64_t>{2});
  std::vector<float> back(2);
  file.read(*a, std::as_writable_bytes(std::span(back)));
  CHECK(back == values);
}

TEST_CASE("tensors of all kinds come back with their names, shapes and bits") {
  TempDir dir;
  const std::vector<float> f{0.1F, -0.0F, 3e38F, 1e-45F, 5, 6};
  const std::vector<double> d{0.1};
  const std::vector<std::int64_t> l{-1, 1LL << 62};
  const std::vector<std::uint8_t> none;
  const std::string odd = "layer \"1\"\n\xc3\xa9";
  written(dir, {view(odd, {2, 3}, f), view("scalar", {}, d), view("long", {2, 1}, l), view("empty", {0, 7}, none)},
          {{"format", "pt"}, {"who", "test"}});
  const SafetensorsFile file(dir / "file");
  CHECK(file.metadata() == Metadata{{"format", "pt"}, {"who", "test"}});
  REQUIRE(file.tensors().size() == 4);
  CHECK(file.find(odd)->shape == std::vector<std::int64_t>{2, 3});
  CHECK(file.find("scalar")->shape.empty());
  CHECK(file.find("scalar")->dtype == DType::float64);
  CHECK(file.find("empty")->bytes() == 0);
  CHECK_FALSE(file.find("absent"));
  std::vector<std::int64_t> back(2);
  file.read(*file.find("long"), std::as_writable_bytes(std::span(back)));
  CHECK(back == l);
  std::vector<float> floats(6);
  file.read(*file.find(odd), std::as_writable_bytes(std::span(floats)));
  CHECK(std::memcmp(floats.data(), f.data(), sizeof(float) * 6) == 0);
}

TEST_CASE("the writer refuses what would not read back") {
  TempDir dir;
  const std::vector<float> two{1, 2};
  CHECK_THROWS_AS(written(dir, {view("a", {3}, two)}), Error);
  CHECK_THROWS_AS(written(dir, {view("a", {2}, two), view("a", {2}, two)}), Error);
  CHECK_THROWS_AS(written(dir, {view("__metadata__", {2}, two)}), Error);
}

TEST_CASE("every malformed file is an error that says what is wrong") {
  TempDir dir;
  const std::string eight(8, '\0');
  const auto header = [&](const std::string& text) { return error_of(dir, file_with_header(text, eight)); };
  const auto entry = [&](const std::string& text) { return header("{\"a\":" + text + "}"); };

  CHECK(error_of(dir, "1234567") == "7 bytes are too few for a safetensors file");
  CHECK(error_of(dir, std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)) ==
        "the header claims 18446744073709551615 bytes, the file has 2 and 100000000 are allowed");
  CHECK_THAT(header("{\"a\":"), Catch::StartsWith("the header is not valid JSON: "));
  CHECK(header("[1]") == "the header is not a JSON object");
  CHECK(header("  {}") == "the header is not a JSON object");
  CHECK(header("{}") == "the header describes 0 bytes of data, the file has 8");
  CHECK(header(R"({"__metadata__":{"a":1}})") == "__metadata__ is not an object of texts");

  CHECK(entry("3") == "tensor 'a': its entry is not an object of dtype, shape and data_offsets");
  CHECK(entry(R"({"dtype":"F32","shape":[2],"offsets":[0,8]})") == "tensor 'a': it has no data_offsets");
  CHECK(entry(R"({"dtype":"F31","shape":[2],"data_offsets":[0,8]})") == "tensor 'a': dtype F31 is not supported");
  CHECK(entry(R"({"dtype":7,"shape":[2],"data_offsets":[0,8]})") == "tensor 'a': its dtype is not a text");
  CHECK(entry(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})") ==
        "tensor 'a': its shape or data_offsets is not an array");
  CHECK(entry(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})") ==
        "tensor 'a': its shape or data_offsets has an element that is not a whole number");
  CHECK(entry(R"({"dtype":"F32","shape":[2.5],"data_offsets":[0,8]})") ==
        "tensor 'a': its shape or data_offsets has an element that is not a whole number");
  CHECK(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})") ==
        "tensor 'a': its data_offsets are not [begin, end]");
  CHECK(entry(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})") ==
        "tensor 'a': its shape takes 12 bytes, its data_offsets span 8");
  CHECK(entry(R"({"dtype":"F32","shape":[4611686018427387904,2],"data_offsets":[0,8]})") ==
        "tensor 'a': its shape is too large");
  CHECK(entry(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})") ==
        "tensor 'a' begins at data offset 4, expected 0 (no hole, no overlap)");
  CHECK(entry(R"({"dtype":"F32","shape":[4],"data_offsets":[0,16]})") ==
        "the header describes 16 bytes of data, the file has 8");
  CHECK(
      header(
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})") ==
      "tensor 'b' begins at data offset 4, expected 8 (no hole, no overlap)");
  CHECK(
      header(
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})") ==
      "the name 'a' is there twice in one object");
  CHECK(
      header(
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})") ==
      "the name 'a' is there twice in one object");
  CHECK(entry(R"({"dtype":"F32","dtype":"I32","shape":[2],"data_offsets":[0,8]})") ==
        "the name 'dtype' is there twice in one object");
}

TEST_CASE("a file cut at any byte is an error, never a crash") {
  TempDir dir;
  const auto whole = example_of_format_page();
  for (std::size_t n = 0; n < whole.size(); ++n) CHECK(error_of(dir, whole.substr(0, n)) != "no error");
  CHECK(error_of(dir, whole) == "no error");
  CHECK(error_of(dir, whole + "x") != "no error");
}
