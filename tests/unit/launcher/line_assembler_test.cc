#include "ddprun/launcher/line_assembler.h"

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

TEST_CASE("lines come out whole, whatever the pieces were") {
  LineAssembler lines("[r0]:");
  CHECK(feed(lines, "a").empty());
  CHECK(feed(lines, "b\nc\n\nd") == "[r0]:ab\n[r0]:c\n[r0]:\n");
  CHECK(flush(lines) == "[r0]:d\n");
  CHECK(flush(lines).empty());
}

TEST_CASE("a carriage return ends a line and stays one") {
  LineAssembler lines("p:");
  CHECK(feed(lines, "10%\r20%\r").substr(0) == "p:10%\r");
  CHECK(feed(lines, "30%\n") == "p:20%\rp:30%\n");
}

TEST_CASE("a bar that begins with its carriage return shows no empty lines") {
  LineAssembler lines("p:");
  CHECK(feed(lines, "\r10%").empty());
  CHECK(feed(lines, "\r20%") == "p:10%\r");
  CHECK(flush(lines) == "p:20%\n");
}

TEST_CASE("carriage return and newline are one end, also across pieces") {
  LineAssembler lines("p:");
  CHECK(feed(lines, "a\r\nb\r") == "p:a\r\n");
  CHECK(feed(lines, "\nc\n") == "p:b\r\np:c\n");
}

TEST_CASE("a long line goes out in bounded pieces") {
  LineAssembler lines("p:", 4);
  CHECK(feed(lines, "abcdefghij\n") == "p:abcd\np:efgh\np:ij\n");
}

TEST_CASE("on a terminal a redrawn line is a bar until its newline") {
  TerminalLines lines("p:");
  const auto lines_of = [&](std::string_view bytes) {
    std::string out;
    lines.feed(bytes, out);
    return out;
  };
  CHECK(lines_of("plain").empty());
  CHECK(lines.bar().empty());
  CHECK(lines_of(" text\n\r10") == "p:plain text\n");
  CHECK(lines.bar() == "p:10");
  CHECK(lines_of("%\r20%").empty());
  CHECK(lines.bar() == "p:20%");
  CHECK(lines_of("\r").empty());
  CHECK(lines.bar() == "p:20%");
  CHECK(lines_of("\x1b[K").empty());
  CHECK(lines.bar().empty());
  CHECK(lines_of("epoch\n30%\r") == "p:epoch\n");
  CHECK(lines.bar() == "p:30%");
  CHECK(lines_of("\nend\r   ") == "p:30%\n");
  CHECK(lines.bar().empty());
  std::string rest;
  lines.flush(rest);
  CHECK(rest.empty());
  CHECK(lines_of("last").empty());
  lines.flush(rest);
  CHECK(rest == "p:last\n");
}

TEST_CASE("on a terminal a long line goes out in bounded pieces too") {
  TerminalLines lines("p:", 4);
  std::string out;
  lines.feed("abcdefghij\n", out);
  CHECK(out == "p:abcd\np:efgh\np:ij\n");
}

TEST_CASE("the tail has what redrawn lines showed last, without colours") {
  Tail tail;
  tail.feed("\r10%\r\x1b[32m20%\x1b[0m\r\nwhy\n");
  CHECK(tail.lines() == "20%\nwhy");
}

TEST_CASE("the tail keeps the last lines only") {
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

TEST_CASE("the tail of one endless line is bounded") {
  Tail tail;
  for (int i = 0; i < 1000; ++i) tail.feed(std::string(1000, 'x'));
  CHECK(tail.lines().size() <= Tail::max_bytes);
  CHECK(tail.lines().size() > Tail::max_bytes / 2);
}
