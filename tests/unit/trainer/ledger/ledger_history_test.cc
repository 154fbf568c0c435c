#include "worker/trainer/ledger/ledger_history.h"

#include <fmt/format.h>

#include "tests/support/catch.h"

using namespace ddprun::trainer;

namespace {

// The ledger has epochs of 10 samples, of which steps of 4 ranks train 4, 4 and 2.
class Ledger {
 public:
  Ledger& session(const std::string& id, const std::string& parent, std::int64_t after, int ranks = 4) {
    id_ = id;
    return line(
        LedgerSession{.id = id, .parent = parent, .after = after, .ranks = ranks, .seed = 1, .epoch_samples = 10});
  }
  Ledger& step(std::int64_t step) {
    const auto in_epoch = (step - 1) % 3;
    return line(LedgerStep{.session = id_,
                           .step = step,
                           .epoch = (step - 1) / 3 + 1,
                           .first = 4 * in_epoch,
                           .samples = in_epoch == 2 ? 2 : 4,
                           .ends_epoch = in_epoch == 2});
  }
  Ledger& steps(std::int64_t first, std::int64_t last) {
    for (auto number = first; number <= last; ++number) step(number);
    return *this;
  }
  Ledger& line(const LedgerLine& line) { return text(to_json(line) + "\n"); }
  Ledger& text(const std::string& more) {
    text_ += more;
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string id_, text_;
};

LedgerVerdict verify(const std::vector<Ledger>& files) {
  LedgerHistory history;
  for (std::size_t i = 0; i < files.size(); ++i) history.add_file(fmt::format("file {}", i), files[i].text());
  return history.verify();
}

std::string problem_of(const std::vector<Ledger>& files) {
  const auto verdict = verify(files);
  CHECK(verdict.hash.empty() != verdict.problems.empty());
  return verdict.problems.empty() ? "none" : verdict.problems.front();
}

const std::string hash_of_six = verify({Ledger().session("a", "", 0).steps(1, 6)}).hash;

}  // namespace

TEST_CASE("a line of a ledger reads back as it was, and half a line is none") {
  const LedgerLine session = LedgerSession{
      .id = "b", .parent = "a", .after = 7, .ranks = 3, .seed = 18446744073709551615ULL, .epoch_samples = 100};
  const LedgerLine step =
      LedgerStep{.session = "b", .step = 8, .epoch = 2, .first = 12, .samples = 4, .ends_epoch = true};
  CHECK(parse_ledger_line(to_json(session)) == session);
  CHECK(parse_ledger_line(to_json(step)) == step);
  CHECK_FALSE(parse_ledger_line(to_json(step).substr(0, 20)));
  CHECK_FALSE(parse_ledger_line(""));
  CHECK_FALSE(parse_ledger_line("[1]"));
  CHECK_FALSE(parse_ledger_line(R"({"session": 1})"));
}

TEST_CASE("an undisturbed run trains each sample of its epochs once") {
  const auto verdict = verify({Ledger().session("a", "", 0).steps(1, 7)});
  CHECK(verdict.problems == std::vector<std::string>{});
  CHECK(verdict.session == "a");
  CHECK(verdict.sessions == 1);
  CHECK(verdict.steps == 7);
  CHECK(verdict.epochs == 2);
  CHECK(verdict.samples == 24);
  CHECK(verdict.left_out == 0);
  CHECK(verdict.abandoned == 0);
  CHECK(verdict.hash.size() == 64);
  CHECK(verdict.hash != hash_of_six);
}

TEST_CASE("a session takes the place of all that follows the step from which it goes on") {
  const auto verdict = verify({Ledger()
                                   .session("a", "", 0)
                                   .steps(1, 5)
                                   .session("b", "a", 2, 3)  // starts from a checkpoint
                                   .steps(3, 4)
                                   .session("c", "b", 4)  // starts after a fault, with the events of the last step
                                   .steps(4, 6)});
  CHECK(verdict.problems == std::vector<std::string>{});
  CHECK(verdict.sessions == 3);
  CHECK(verdict.steps == 6);
  CHECK(verdict.abandoned == 3);
  CHECK(verdict.hash == hash_of_six);
}

TEST_CASE("a step whose line a lost rank did not write is in the next session") {
  CHECK(verify({Ledger().session("a", "", 0).steps(1, 3).session("b", "a", 4).steps(4, 6)}).hash == hash_of_six);
}

TEST_CASE("a run that nobody continued is no part of the lineage") {
  const auto verdict = verify(
      {Ledger().session("a", "", 0).steps(1, 2).session("b", "a", 2).steps(3, 4).session("c", "a", 2).steps(3, 6)});
  CHECK(verdict.session == "c");
  CHECK(verdict.sessions == 2);
  CHECK(verdict.abandoned == 2);
  CHECK(verdict.hash == hash_of_six);
}

TEST_CASE("files of several hosts, of which one has left, are one ledger") {
  const auto whole = Ledger().session("a", "", 0).steps(1, 3).session("b", "a", 3).steps(4, 6);
  const auto left = Ledger().session("a", "", 0).steps(1, 2);
  CHECK(verify({whole, left}).hash == hash_of_six);
  CHECK(verify({left, whole}).hash == hash_of_six);
  CHECK(verify({whole, whole}).hash == hash_of_six);
  CHECK(verify({whole, Ledger()}).hash == hash_of_six);
}

TEST_CASE("lines that a killed process has left half written are passed over") {
  CHECK(verify({Ledger().session("a", "", 0).steps(1, 3).text("{\"session\": \"a\", \"st\n").steps(4, 6)}).hash ==
        hash_of_six);
}

TEST_CASE("samples that are missing or twice are named") {
  CHECK(problem_of({Ledger().session("a", "", 0).step(1).step(3)}) == "steps 2 to 2 are missing");
  const auto with = [](std::int64_t first, std::int64_t samples, bool ends = false) {
    return problem_of(
        {Ledger()
             .session("a", "", 0)
             .step(1)
             .line(LedgerStep{
                 .session = "a", .step = 2, .epoch = 1, .first = first, .samples = samples, .ends_epoch = ends})});
  };
  CHECK(with(4, 4) == "none");
  CHECK(with(6, 4) == "samples 4 to 5 of epoch 1 are not trained before step 2");
  CHECK(with(2, 4) == "step 2 trains samples 2 to 3 of epoch 1 again");
  CHECK(with(4, 8) == "step 2 trains samples 4 to 11 of epoch 1, and the epoch has 10");
  CHECK(problem_of({Ledger().session("a", "", 0).steps(1, 2).step(4)}) == "steps 3 to 3 are missing");
  CHECK(problem_of({Ledger()
                        .session("a", "", 0)
                        .step(1)
                        .line(LedgerStep{.session = "a", .step = 2, .epoch = 2, .first = 0, .samples = 4})}) ==
        "samples 4 to 9 of epoch 1 are not trained");
  CHECK(problem_of({Ledger()
                        .session("a", "", 0)
                        .step(1)
                        .line(LedgerStep{.session = "a", .step = 2, .epoch = 3, .first = 0, .samples = 4})}) ==
        "step 2 is of epoch 3, where epoch 1 goes on");
}

TEST_CASE("the end of an epoch that does not divide among the ranks of a resumed run is left out") {
  const auto verdict = verify({Ledger()
                                   .session("a", "", 0)
                                   .steps(1, 2)
                                   .session("b", "a", 2, 3)
                                   .line(LedgerStep{.session = "b", .step = 3, .epoch = 2, .first = 0, .samples = 3})});
  CHECK(verdict.problems == std::vector<std::string>{});
  CHECK(verdict.epochs == 1);
  CHECK(verdict.left_out == 2);
}

TEST_CASE("samples that are left out at the end of an epoch are counted") {
  const auto verdict = verify(
      {Ledger()
           .session("a", "", 0)
           .steps(1, 2)
           .line(LedgerStep{.session = "a", .step = 3, .epoch = 1, .first = 8, .samples = 1, .ends_epoch = true})});
  CHECK(verdict.problems == std::vector<std::string>{});
  CHECK(verdict.left_out == 1);
  CHECK(verdict.epochs == 1);
}

TEST_CASE("ledgers that contradict each other or lack a beginning are refused") {
  CHECK(problem_of({Ledger()}) == "there is no session");
  CHECK(problem_of({Ledger().session("b", "a", 3).steps(4, 6)}) ==
        "session b goes on from session a, which is in no file");
  CHECK(problem_of({Ledger().session("a", "", 0).step(1), Ledger().session("a", "", 0, 3)}) ==
        "file 1: session a begins otherwise than in another file");
  CHECK(problem_of({Ledger().session("a", "", 0).step(1),
                    Ledger()
                        .session("a", "", 0)
                        .line(LedgerStep{.session = "a", .step = 1, .epoch = 1, .first = 0, .samples = 5})}) ==
        "file 1: step 1 of session a has other samples than in another line");
  CHECK(problem_of({Ledger().line(LedgerStep{.session = "a", .step = 1})}) ==
        "file 0: step 1 is of session a, which has not begun");
  CHECK(problem_of({Ledger().session("a", "", 0).steps(1, 3), Ledger().session("x", "", 0).step(1)})
            .starts_with("the files end in sessions"));
}
