#include "launcher/output/screen.h"

#include "tests/support/catch.h"
#include "tests/support/screen_emulator.h"

using namespace ddprun;
using ddprun::testing::ScreenEmulator;
using Rows = std::vector<std::string>;

TEST_CASE("without bars texts are passed on unchanged") {
  Screen screen;
  CHECK(screen.write("a\nb") == "a\nb");
  CHECK(screen.update(0, "line\n", "") == "line\n");
  CHECK(screen.update(0, "", "").empty());
}

TEST_CASE("a bar overwrites its own row, and a shorter one leaves nothing of the longer one") {
  Screen screen;
  CHECK(screen.update(0, "", "p:10% long") == "p:10% long");
  CHECK(screen.update(0, "", "p:20%") == "\rp:20%\x1b[K");
  CHECK(screen.update(0, "", "p:20%").empty());
  CHECK(screen.update(0, "p:done\n", "") == "\r\x1b[Jp:done\n");
}

TEST_CASE("lines are inserted above the bars and each source keeps its row") {
  Screen screen;
  ScreenEmulator seen;
  seen.feed(screen.update(2, "", "b 1"));
  seen.feed(screen.update(0, "", "a 1"));
  CHECK(seen.rows() == Rows{"a 1", "b 1"});
  seen.feed(screen.update(2, "", "b 2"));
  seen.feed(screen.write("log\n"));
  seen.feed(screen.update(4, "line\n", ""));
  CHECK(seen.rows() == Rows{"log", "line", "a 1", "b 2"});
  seen.feed(screen.update(0, "a whole\n", "a 2"));
  CHECK(seen.rows() == Rows{"log", "line", "a whole", "a 2", "b 2"});
  seen.feed(screen.update(0, "", ""));
  seen.feed(screen.update(2, "b whole\n", ""));
  CHECK(seen.rows() == Rows{"log", "line", "a whole", "b whole"});
}

TEST_CASE("a source may have several rows") {
  Screen screen;
  ScreenEmulator seen;
  seen.feed(screen.update(1, "", "below"));
  seen.feed(screen.update(0, "", "outer\ninner"));
  CHECK(seen.rows() == Rows{"outer", "inner", "below"});
  seen.feed(screen.update(0, "", "outer\nin"));
  CHECK(seen.rows() == Rows{"outer", "in", "below"});
  seen.feed(screen.update(0, "", "outer"));
  CHECK(seen.rows() == Rows{"outer", "below"});
}

TEST_CASE("a text without a line end does not run into a bar") {
  Screen screen;
  ScreenEmulator seen;
  seen.feed(screen.update(0, "", "bar"));
  seen.feed(screen.write("prompt"));
  CHECK(seen.rows() == Rows{"prompt", "bar"});
}

TEST_CASE("a bar is cut to the width of the terminal") {
  Screen screen;
  ScreenEmulator seen(10);
  screen.resize({.columns = 10, .rows = 24});
  seen.feed(screen.update(0, "", "0123456789abc"));
  seen.feed(screen.update(0, "", "123456789abcd"));
  seen.feed(screen.update(1, "", "xy"));
  seen.feed(screen.update(0, "", "23456789abcde"));
  CHECK(seen.rows() == Rows{"23456789ab", "xy"});
}

TEST_CASE("there are never more bars than fit on the terminal, also after it shrinks") {
  Screen screen;
  ScreenEmulator seen;
  for (int i = 0; i < 5; ++i) seen.feed(screen.update(i, "", std::to_string(i)));
  CHECK(seen.rows().size() == 5);
  screen.resize({.columns = 80, .rows = 3});
  seen.feed(screen.update(0, "", "first"));
  CHECK(seen.rows() == Rows{"first", "1"});
  seen.feed(screen.update(1, "", "second"));
  CHECK(seen.rows() == Rows{"first", "second"});
}
