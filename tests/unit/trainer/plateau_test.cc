// optim.schedule = plateau against PyTorch's ReduceLROnPlateau, and its state in checkpoints.
#include "worker/trainer/state/plateau.h"

#include <limits>

#include "tests/numerics/training_job.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/records.h"

using namespace ddprun;
using namespace ddprun::testing;
using optim::PlateauOptions;
using trainer::Plateau;

namespace {

const std::vector<double> losses{1.0,  0.9, 0.95, 0.9,  0.89995, 0.91, 0.8,  0.85, 0.82, 0.81,
                                 0.83, 0.9, 0.7,  0.71, 0.72,    0.73, 0.74, 0.75, 0.76, 0.77};

std::vector<double> rates(const PlateauOptions& options) {
  Plateau plateau(options);
  std::vector<double> all;
  for (const double loss : losses) {
    Plateau restored(options);  // as a run that stops and resumes after each evaluation
    restored.set_state(plateau.state());
    plateau = restored;
    plateau.note(loss);
    all.push_back(plateau.lr());
  }
  return all;
}

void check_equal(const std::vector<double>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(expected[i]).epsilon(1e-12));
}

}  // namespace

// The rates were made with torch.optim.SGD(lr=0.1), ReduceLROnPlateau of PyTorch 2.15, and step(loss) for each loss.
TEST_CASE("plateau reduces the learning rate where PyTorch's ReduceLROnPlateau does") {
  check_equal(rates({.lr = 0.1, .factor = 0.5, .patience = 1}),
              {0.1,     0.1,     0.1,     0.05,    0.05,     0.025,    0.025,     0.025,     0.0125,     0.0125,
               0.00625, 0.00625, 0.00625, 0.00625, 0.003125, 0.003125, 0.0015625, 0.0015625, 0.00078125, 0.00078125});
  check_equal(rates({.lr = 0.1, .factor = 0.5, .patience = 1, .cooldown = 2}),
              {0.1,   0.1,   0.1,   0.05,  0.05,   0.05,   0.05,   0.05,   0.025,   0.025,
               0.025, 0.025, 0.025, 0.025, 0.0125, 0.0125, 0.0125, 0.0125, 0.00625, 0.00625});
  std::vector<double> down_to_least(20, 0.002);
  std::copy_n(std::vector<double>{0.1, 0.1, 0.03, 0.009, 0.0027}.begin(), 5, down_to_least.begin());
  check_equal(rates({.lr = 0.1, .factor = 0.3, .patience = 0, .threshold = 0.05, .min_lr = 0.002}), down_to_least);
}

TEST_CASE("a loss that is not a number is no improvement") {
  Plateau plateau({.lr = 1, .factor = 0.5, .patience = 0});
  plateau.note(std::numeric_limits<double>::quiet_NaN());
  CHECK(plateau.lr() == 0.5);
  CHECK(!plateau.state().best);
}

TEST_CASE("a run with plateau lowers its learning rate, also when it stops and goes on") {
  const std::string zero = GENERATE("0", "3");
  const auto run = [&](const TempDir& dir, int epochs) {
    return TrainingJob(
               "[model]\nname = linear\n[data]\nname = random\nsamples = 40\ntest_samples = 10\n"
               "[train]\nbatch_size = 8\nepochs = " +
               std::to_string(epochs) +
               "\n[optim]\nlr = 0.1\nschedule = plateau\npatience = 1\nthreshold = 0.9\nfactor = 0.5\n"
               "[parallel]\nzero = " +
               zero + "\n[checkpoint]\ndir = " + (dir / "checkpoints").string() +
               "\n[metrics]\nfile = " + (dir / "metrics").string() + "\n")
        .run(2)[0]
        .parameter_digest;
  };
  const TempDir whole, stopped;
  const auto expected = run(whole, 8);
  for (const int epochs : {2, 3, 8}) CHECK((run(stopped, epochs) == expected) == (epochs == 8));
  const auto rates_of = [](const TempDir& dir) {
    std::vector<double> all;
    for (const auto& record : step_records(dir / "metrics")) all.push_back(record.at("lr").to_number<double>());
    return all;
  };
  const auto all = rates_of(whole);
  CHECK(all.front() == 0.1);
  CHECK(all.back() < 0.1);
  CHECK(rates_of(stopped) == all);
}
