#include "launcher/output/line_assembler.h"

#include "tests/support/catch.h"

using namespace ddprun;

namespace {

std::string feed(LineAssembler& lines, std::string_view bytes) {
  std::string out;
  lines.feed(bytes, out);
  return out;
}

std::string flush(LineAssembler& lines) {
  std::string out;
  lines.flush(out);
  return out;
}

}  // namespace

TEST_CASE("lines are whole, however the bytes were split") {
  LineAssembler lines("[r0]:");
  CHECK(feed(lines, "a").empty());
  CHECK(feed(lines, "b\nc\n\nd") == "[r0]:ab\n[r0]:c\n[r0]:\n");
  CHECK(flush(lines) == "[r0]:d\n");
  CHECK(flush(lines).empty());
}

TEST_CASE("a carriage return ends a line and is passed on") {
  LineAssembler lines("p:");
  CHECK(feed(lines, "10%\r20%\r").substr(0) == "p:10%\r");
  CHECK(feed(lines, "30%\n") == "p:20%\rp:30%\n");
}

TEST_CASE("a bar that begins with its carriage return causes no empty line") {
  LineAssembler lines("p:");
  CHECK(feed(lines, "\r10%").empty());
  CHECK(feed(lines, "\r20%") == "p:10%\r");
  CHECK(flush(lines) == "p:20%\n");
}

TEST_CASE("carriage return and newline are one line end, also when they arrive separately") {
  LineAssembler lines("p:");
  CHECK(feed(lines, "a\r\nb\r") == "p:a\r\n");
  CHECK(feed(lines, "\nc\n") == "p:b\r\np:c\n");
}

TEST_CASE("a long line is split into lines of bounded length") {
  LineAssembler lines("p:", 4);
  CHECK(feed(lines, "abcdefghij\n") == "p:abcd\np:efgh\np:ij\n");
}

TEST_CASE("a filter keeps the lines that contain any of its texts, with the prefix") {
  LineFilter filter({"loss", "a,b"}, "[p]:");
  std::string out;
  filter.feed("step 1\nlo", out);
  CHECK(out.empty());
  filter.feed("ss 2\nx a,b\r\n[p]\nthe loss", out);
  CHECK(out == "[p]:loss 2\n[p]:x a,b\r\n");
  filter.flush(out);
  CHECK(out == "[p]:loss 2\n[p]:x a,b\r\n[p]:the loss\n");
}

TEST_CASE("a filter examines each state of a redrawn line separately") {
  LineFilter filter({"50%"}, "");
  std::string out;
  filter.feed("10%\r50%\r90%\n", out);
  CHECK(out == "50%\r");
}

namespace {

struct Terminal {
  TerminalLines lines{"p:"};
  std::string feed(std::string_view bytes) {
    std::string out;
    lines.feed(bytes, out);
    return out;
  }
  std::string flush() {
    std::string out;
    lines.flush(out);
    return out;
  }
};

}  // namespace

TEST_CASE("on a terminal a redrawn line is a bar until a line follows below it") {
  Terminal t;
  CHECK(t.feed("plain").empty());
  CHECK(t.lines.bars().empty());
  CHECK(t.feed(" text\n\n\r10") == "p:plain text\np:\n");
  CHECK(t.lines.bars() == "p:10");
  CHECK(t.feed("%\r20%").empty());
  CHECK(t.lines.bars() == "p:20%");
  CHECK(t.feed("\r").empty());
  CHECK(t.lines.bars() == "p:20%");
  CHECK(t.feed("\x1b[K").empty());
  CHECK(t.lines.bars().empty());
  CHECK(t.feed("epoch\n30%\r") == "p:epoch\n");
  CHECK(t.lines.bars() == "p:30%");
  CHECK(t.feed("\n").empty());
  CHECK(t.lines.bars() == "p:30%");
  CHECK(t.feed("\r0%").empty());
  CHECK(t.lines.bars() == "p:30%\np:0%");
  CHECK(t.feed("\r1%") == "p:30%\n");
  CHECK(t.lines.bars() == "p:1%");
  CHECK(t.feed("\r   ").empty());
  CHECK(t.lines.bars().empty());
  CHECK(t.flush().empty());
  CHECK(t.feed("\rbar\nlast") == "p:bar\n");
  CHECK(t.flush() == "p:last\n");
}

TEST_CASE("nested bars keep their rows, however the bytes were split") {
  const std::string drawn = "\router 0\n\rinner 0\x1b[A\n\rinner 1\x1b[A\router 1\n\rinner 0\x1b[1A";
  Terminal whole;
  CHECK(whole.feed(drawn).empty());
  CHECK(whole.lines.bars() == "p:outer 1\np:inner 0");
  Terminal pieces;
  for (const char c : drawn) CHECK(pieces.feed({&c, 1}).empty());
  CHECK(pieces.lines.bars() == "p:outer 1\np:inner 0");
  // The inner bar is erased, a line replaces the outer one, which is drawn again below it.
  CHECK(whole.feed("\n\r       \r\x1b[A\r       \rsaved\n\router 2").empty());
  CHECK(whole.lines.bars() == "p:saved\np:outer 2");
  CHECK(whole.feed("\n\rinner 0\x1b[A\router 3") == "p:saved\n");
  CHECK(whole.lines.bars() == "p:outer 3\np:inner 0");
  CHECK(whole.flush() == "p:outer 3\np:inner 0\n");
}

TEST_CASE("the number of rows that can be redrawn is bounded") {
  Terminal t;
  CHECK(t.feed("\rbar" + std::string(15, '\n')).empty());
  CHECK(t.feed("\n") == "p:bar\n");
}

TEST_CASE("on a terminal a long line is split into lines of bounded length too") {
  TerminalLines lines("p:", 4);
  std::string out;
  lines.feed("abcdefghij\n", out);
  CHECK(out == "p:abcd\np:efgh\np:ij\n");
}

TEST_CASE("the tail holds redrawn lines as drawn last, without colours") {
  Tail tail;
  tail.feed("\r10%\r\x1b[32m20%\x1b[0m\r\nwhy\n");
  CHECK(tail.lines() == "20%\nwhy");
}

TEST_CASE("the tail keeps only the last lines") {
  Tail tail;
  for (int i = 0; i < 100'000; ++i) tail.feed("line " + std::to_string(i) + "\n");
  const auto text = tail.lines();
  CHECK(text.starts_with("line 99980\n"));
  CHECK(text.ends_with("line 99999"));
  CHECK(Tail().lines().empty());
  Tail one;
  one.feed("only");
  CHECK(one.lines() == "only");
}

TEST_CASE("the tail of an endless line is bounded") {
  Tail tail;
  for (int i = 0; i < 1000; ++i) tail.feed(std::string(1000, 'x'));
  CHECK(tail.lines().size() <= Tail::max_bytes);
  CHECK(tail.lines().size() > Tail::max_bytes / 2);
}
