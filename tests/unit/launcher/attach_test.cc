#include "common/error.h"
#include "launcher/attach/attach_protocol.h"
#include "launcher/attach/recent_output.h"
#include "tests/support/catch.h"

// The workers' output that an agent keeps, and the way in which it sends it.
using namespace ddprun;

namespace {

constexpr auto out = Console::Stream::out;
constexpr auto err = Console::Stream::err;

std::string text_of(const std::vector<OutputPiece>& pieces) {
  std::string text;
  for (const auto& piece : pieces) text += piece.bytes;
  return text;
}

}  // namespace

TEST_CASE("recent output keeps both streams of each rank in their order") {
  RecentOutput recent;
  recent.feed(0, out, "a\n");
  recent.feed(1, out, "other\n");
  recent.feed(0, err, "b\n");
  recent.feed(0, err, "c\n");
  recent.feed(0, out, "d");
  const auto pieces = recent.last(0);
  REQUIRE(pieces.size() == 3);
  CHECK(pieces[0].bytes == "a\n");
  CHECK(pieces[1].stream == err);
  CHECK(pieces[1].bytes == "b\nc\n");
  CHECK(pieces[2].bytes == "d");
  CHECK(text_of(recent.last(1)) == "other\n");
  CHECK(recent.last(2).empty());
}

TEST_CASE("recent output is bounded and begins with a whole line once something was dropped") {
  RecentOutput recent;
  std::string all;
  for (int line = 0; line < 3000; ++line) {
    const auto text = "line " + std::to_string(line) + "\n";
    recent.feed(0, out, text);
    all += text;
  }
  const auto text = text_of(recent.last(0));
  CHECK(text.size() <= RecentOutput::max_bytes);
  CHECK(text.size() > RecentOutput::max_bytes - 10);
  CHECK(text.starts_with("line "));
  CHECK(all.ends_with(text));
}

TEST_CASE("of output in one large block, and of a line without an end, the end is kept") {
  RecentOutput recent;
  recent.feed(0, out, "before\n");
  recent.feed(0, out, std::string(100'000, 'x') + "\nlast\n");
  CHECK(text_of(recent.last(0)) == "last\n");
  recent.feed(1, out, std::string(100'000, 'x'));
  CHECK(recent.last(1).empty());
}

TEST_CASE("the output of a round is kept apart from what was written before, also when that is dropped") {
  RecentOutput recent;
  recent.feed(0, out, "former\n");
  CHECK(text_of(recent.last_of_round(0)) == "former\n");
  recent.begin_round();
  CHECK(recent.last_of_round(0).empty());
  CHECK(recent.last_of_round(1).empty());
  recent.feed(0, out, "now\n");
  recent.feed(1, out, "other\n");
  CHECK(text_of(recent.last_of_round(0)) == "now\n");
  CHECK(text_of(recent.last_of_round(1)) == "other\n");
  CHECK(text_of(recent.last(0)) == "former\nnow\n");
  recent.feed(0, err, std::string(RecentOutput::max_bytes - 4, 'x'));
  CHECK(text_of(recent.last_of_round(0)) == "now\n" + std::string(RecentOutput::max_bytes - 4, 'x'));
  recent.feed(0, out, "\nend\n");
  CHECK(text_of(recent.last_of_round(0)) == "end\n");
}

TEST_CASE("frames are read again from any pieces of their bytes") {
  using Kind = AttachFrame::Kind;
  const auto bytes =
      encode_frame(Kind::out, std::string(300, 'o')) + encode_frame(Kind::err, "") + encode_frame(Kind::end, "137");
  AttachFrames frames;
  std::vector<AttachFrame> read;
  for (const char byte : bytes) {
    frames.feed({&byte, 1});
    while (auto frame = frames.next()) read.push_back(std::move(*frame));
  }
  REQUIRE(read.size() == 3);
  CHECK(read[0].content == std::string(300, 'o'));
  CHECK(read[1].kind == Kind::err);
  CHECK(read[1].content.empty());
  CHECK(read[2].kind == Kind::end);
  CHECK(read[2].content == "137");
}

TEST_CASE("what is no frame is refused") {
  AttachFrames unknown;
  unknown.feed("{\"pid\"");
  CHECK_THROWS_WITH(unknown.next(), "this is not an agent's answer: byte 123");
  AttachFrames large;
  large.feed(std::string("o\xff\xff\xff\x7f", 5));
  CHECK_THROWS_WITH(large.next(), "this is not an agent's answer: a frame of 2147483647 bytes");
}
