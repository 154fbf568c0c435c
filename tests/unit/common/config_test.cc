#include "common/config/config_file.h"
#include "common/config/settings.h"
#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

struct Options {
  std::int64_t epochs = 1;
  double lr = 0.1;
  double interval = 1;
  std::string name = "cnn";
  std::filesystem::path dir;
  bool shuffle = true;
};

struct Bound {
  Options options;
  Settings settings;
  Bound() {
    settings.add("train.epochs", options.epochs, {.help = "passes over the data", .min = 1});
    settings.add("optim.lr", options.lr, {.help = "learning rate", .min = 0});
    settings.add("train.interval", options.interval, {.help = "between steps", .min = 1e-9});
    settings.add("model.name", options.name, {.help = "which model", .choices = {"cnn", "mlp"}});
    settings.add("data.dir", options.dir, {.help = "folder"});
    settings.add("data.shuffle", options.shuffle, {.help = "new order each epoch"});
  }
};

std::string usage_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    CHECK(e.code() == Errc::usage);
    return e.what();
  }
  FAIL("no error");
  return {};
}

}  // namespace

TEST_CASE("a file sets every kind of value") {
  Bound b;
  apply(b.settings,
        parse_config("# job\n[train]\nepochs = 3 # three\n[optim]\nlr=1e-3\n[model]\nname = mlp\n[data]\n"
                     "dir = \"a b # c\"\nshuffle = off\n[launch]\nnnodes = 2\n",
                     "t.cfg"),
        Origin::file, {"launch"});
  CHECK(b.options.epochs == 3);
  CHECK(b.options.lr == 1e-3);
  CHECK(b.options.name == "mlp");
  CHECK(b.options.dir == "a b # c");
  CHECK_FALSE(b.options.shuffle);
}

TEST_CASE("the command line has precedence over the environment, and that over the file, in any order") {
  Bound b;
  b.settings.assign("train.epochs", "7", {Origin::command_line, "--train.epochs"});
  b.settings.assign("train.epochs", "5", {Origin::file, "t.cfg:1"});
  b.settings.assign("train.epochs", "6", {Origin::environment, "X"});
  CHECK(b.options.epochs == 7);
  CHECK(b.settings.find("train.epochs")->source.where == "--train.epochs");
}

TEST_CASE("errors name file, line, key and the valid values") {
  Bound b;
  const auto fails = [&](const char* text) {
    return usage_error([&] { apply(b.settings, parse_config(text, "t.cfg"), Origin::file); });
  };
  CHECK(fails("[train]\nepoch = 3\n") == "t.cfg:2: unknown key train.epoch; did you mean train.epochs?");
  CHECK(fails("[train]\nepochs = 0\n") == "t.cfg:2: train.epochs = 0: expected a whole number at least 1");
  CHECK(fails("[train]\nepochs = 1.5\n") == "t.cfg:2: train.epochs = 1.5: expected a whole number at least 1");
  CHECK(fails("[model]\nname = cn\n") == "t.cfg:2: model.name = cn: expected one of cnn, mlp");
  CHECK(fails("[optim]\nlr = nan\n") == "t.cfg:2: optim.lr = nan: expected a number at least 0");
  CHECK(fails("[train]\ninterval = 0\n") == "t.cfg:2: train.interval = 0: expected a positive number");
  CHECK(fails("[train]\n\x1b[2J\n") == "t.cfg:2: this is not a text file: the line contains the byte 0x1b");
  CHECK(fails("[train]\n\xff\n") == "t.cfg:2: expected 'key = value' or '[section]', got '\\xff'");
  CHECK(fails("[train]\nepoch\xff = 3\n") == "t.cfg:2: unknown key train.epoch\\xff; did you mean train.epochs?");
  CHECK(fails("[train]\nepochs = \xff\n") == "t.cfg:2: train.epochs = \\xff: expected a whole number at least 1");
  CHECK(fails("\x7f"
              "ELF\x02") == "t.cfg:1: this is not a text file: the line contains the byte 0x7f");
  CHECK(fails("epochs = 3\n") == "t.cfg:1: 'epochs' comes before any [section]");
  CHECK(fails("[train]\nepochs\n") == "t.cfg:2: expected 'key = value' or '[section]', got 'epochs'");
  CHECK(fails("[train]\nepochs = 1\nepochs = 2\n") == "t.cfg:3: train.epochs was already given at t.cfg:2");
  CHECK(fails("[data]\ndir = \"x\n") == "t.cfg:2: the quote is not closed");
}

TEST_CASE("the key suggested for an unknown one is of its section, the one that it begins if there is one") {
  int nproc_per_node = 1, node_rank = 0;
  std::string role;
  Settings settings;
  settings.add("launch.nproc_per_node", nproc_per_node, {.help = "workers"});
  settings.add("launch.role", role, {.help = "name"});
  settings.add("launch.node_rank", node_rank, {.help = "rank"});
  const auto complaint = [&](const char* key) {
    return usage_error([&] { settings.assign(key, "1", {Origin::file, "t.cfg:1"}); });
  };
  CHECK(complaint("launch.nproc") == "t.cfg:1: unknown key launch.nproc; did you mean launch.nproc_per_node?");
  CHECK(complaint("launch.rol") == "t.cfg:1: unknown key launch.rol; did you mean launch.role?");
  CHECK(complaint("launch.node_rnak") == "t.cfg:1: unknown key launch.node_rnak; did you mean launch.node_rank?");
  CHECK(complaint("launch.xyz") == "t.cfg:1: unknown key launch.xyz");
  CHECK(complaint("lanch.role") == "t.cfg:1: unknown key lanch.role; did you mean launch.role?");
}

TEST_CASE("an override may be one argument or two") {
  const auto entries = parse_overrides({"--train.epochs=2", "--data.dir", "x=y", "--model.name="});
  REQUIRE(entries.size() == 3);
  CHECK(entries[0].key == "train.epochs");
  CHECK(entries[1].value == "x=y");
  CHECK(entries[2].value.empty());
  CHECK(usage_error([] { parse_overrides({"--epochs=2"}); }) == "'--epochs=2': expected --section.key=value");
  const std::vector<std::string> keys{"train.epochs", "model.name", "data.name"};
  CHECK(usage_error([&] { parse_overrides({"--epochs=2"}, keys); }) ==
        "'--epochs=2': expected --section.key=value; did you mean --train.epochs?");
  CHECK(usage_error([&] {
          parse_overrides({"--name", "x"}, keys);
        }) == "'--name': expected --section.key=value; did you mean --model.name or --data.name?");
  CHECK(usage_error([&] { parse_overrides({"name"}, keys); }) == "'name': expected --section.key=value");
  CHECK(usage_error([] { parse_overrides({"--train.epochs"}); }) == "'--train.epochs' has no value");
}

TEST_CASE("the printed configuration is a valid configuration with the same values") {
  Bound b;
  b.settings.assign("data.dir", "a b", {Origin::file, "t.cfg:9"});
  Bound again;
  apply(again.settings, parse_config(b.settings.effective(), "dump"), Origin::file);
  CHECK(again.options.dir == "a b");
  CHECK(again.options.lr == b.options.lr);
  CHECK(b.settings.effective().find("# t.cfg:9") != std::string::npos);
}

TEST_CASE("the reference page has a row for every setting") {
  Bound b;
  const auto page = b.settings.reference();
  CHECK(page.find("| `epochs` | int | `1` | passes over the data; at least 1 |") != std::string::npos);
  CHECK(page.find("one of `cnn`, `mlp`") != std::string::npos);
}

TEST_CASE("the bytes of a file that is not text are escaped") {
  const std::string escape("\x1b[2J");
  for (const auto& line :
       {"[tr" + escape + "ain]", "x = " + escape, "nonsense" + escape, std::string("\xff\xfe[\0t", 5)}) {
    CAPTURE(line);
    try {
      parse_config("[train]\n" + line + "\n", "broken.cfg");
      FAIL("accepted");
    } catch (const Error& error) {
      CHECK(error.code() == Errc::usage);
      CHECK_THAT(error.what(),
                 Catch::StartsWith("broken.cfg:2: this is not a text file: the line contains the byte 0x"));
      CHECK(std::string_view(error.what()).find('\x1b') == std::string_view::npos);
      CHECK(std::string_view(error.what()).find('\xff') == std::string_view::npos);
    }
  }
  CHECK(parse_config("[train]\nname = \"Größe\"\t# tab\r\n", "good.cfg").front().value == "Größe");
}

TEST_CASE("an abbreviation of one key is completed, other words are matched by edit distance") {
  const std::vector<std::string> keys{"launch.role", "launch.nproc_per_node", "launch.nnodes", "launch.node_rank"};
  CHECK(nearest("launch.nproc", keys) == "launch.nproc_per_node");
  CHECK(nearest("launch.nnode", keys) == "launch.nnodes");
  CHECK(nearest("launch.n", keys) != "launch.nproc_per_node");
  CHECK_FALSE(nearest("completely different", keys));
}
