#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>

#include "worker/trainer/session/evaluation.h"
#include "worker/trainer/session/expert_use.h"

namespace ddprun::trainer {

// Shares of the time of some steps, 0 .. 1.
struct TimeShares {
  double data = 0;  // waiting for the loader
  double compute = 0;
  double communication = 0;  // the part that does not overlap with computation
};

// The progress of a run, to be printed.
struct ProgressState {
  std::int64_t step = 0;
  std::int64_t steps = 1;  // those since the progress before
  std::int64_t total_steps = 0;
  std::int64_t epoch = 0;  // 1 is the first
  std::int64_t epochs = 0;
  double loss = 0;
  double samples_per_s = 0;
  std::chrono::duration<double> left{0};
  std::optional<double> loss_scale = {};
  std::int64_t skipped_steps = 0;  // counted with a loss scale
  std::optional<ExpertUse> experts = {};
  std::optional<TimeShares> shares = {};  // those of the steps since the last line
};

// Returns "step 9/63, epoch 2/9, loss 0.3210, 123 samples/s (data 2 %, compute 90 %, communication 8 %), 25 s left".
std::string progress_line(const ProgressState& state);
// Returns "[=====>    ] ..." of at most width columns. On a narrow terminal the text is shorter, so that the bar fits.
std::string progress_bar(const ProgressState& state, int width);
// Returns the text after the loss: ", accuracy 96.10 %, perplexity 12.3456"; each figure if there is one.
std::string figures_text(const Evaluation& evaluation);
// Returns a text such as "test loss 0.1234, accuracy 96.10 %".
std::string evaluation_text(const Evaluation& evaluation);
// Returns a text such as "epoch 2/10: test loss 0.1234, accuracy 96.10 %", or "epoch 2/10, step 500: ..." with a step.
std::string evaluation_line(std::int64_t epoch, std::int64_t epochs, std::int64_t step, const Evaluation& evaluation);
// Returns "steps by the staleness of their gradient: 0: 90, 2: 10", given the numbers by staleness.
std::string staleness_line(std::span<const std::int64_t> counts);
// Returns a text such as "3 s", "2 min 05 s" or "1 h 04 min".
std::string duration_text(std::chrono::duration<double> duration);

// Prints the progress of a run: on a terminal a bar that is redrawn, elsewhere a line every log_every steps. A write
// that fails does not end the training; error() reports it.
//
// Ownership: the file outlives this object. Threads: one at a time.
class Progress {
 public:
  // file: usually stdout, or null for silence. log_every 0: no lines. prints: this rank does.
  Progress(std::FILE* file, std::int64_t log_every, bool prints = true);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Whether this rank prints from now on.
  void set_prints(bool prints) { prints_ = prints; }
  // Returns whether it has printed a line.
  bool step(const ProgressState& state);
  // Prints a line of its own, above the bar if there is one.
  void line(const std::string& text);
  // The errno of the first write that failed, or 0.
  int error() const { return error_; }

 private:
  void write(const std::string& text);

  std::FILE* file_;
  std::int64_t log_every_;
  bool terminal_;
  bool prints_;
  bool bar_drawn_ = false;
  int error_ = 0;
  std::chrono::steady_clock::time_point drawn_at_{};
};

}  // namespace ddprun::trainer
