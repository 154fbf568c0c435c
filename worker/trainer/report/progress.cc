#include "worker/trainer/report/progress.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/ranges.h>

namespace ddprun::trainer {
namespace {

constexpr auto redraw_interval = std::chrono::milliseconds(100);
constexpr int default_columns = 80;
constexpr const char* erase_bar = "\r\x1b[K";

int columns_of(std::FILE* file) {
  winsize size{};
  return ::ioctl(::fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : default_columns;
}

std::string filled(const ProgressState& s, int room) {
  const auto done = static_cast<std::size_t>(s.total_steps > 0 ? room * s.step / s.total_steps : 0);
  std::string bar(done, '=');
  bar += '>';
  bar.resize(static_cast<std::size_t>(room), ' ');
  return bar;
}

}  // namespace

std::string duration_text(std::chrono::duration<double> duration) {
  const auto seconds = std::llround(std::max(0.0, duration.count()));
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min {:02} s", seconds / 60, seconds % 60);
  return fmt::format("{} h {:02} min", seconds / 3600, seconds / 60 % 60);
}

namespace {

std::string shares_text(const TimeShares& shares) {
  return fmt::format(" (data {:.0f} %, compute {:.0f} %, communication {:.0f} %)", 100 * shares.data,
                     100 * shares.compute, 100 * shares.communication);
}

}  // namespace

std::string progress_line(const ProgressState& s) {
  const auto scale =
      s.loss_scale ? fmt::format(", loss scale {}, {} skipped", *s.loss_scale, s.skipped_steps) : std::string();
  const auto experts =
      s.experts ? fmt::format(", expert load {:.2f}, {:.1f} % dropped", s.experts->load, 100 * s.experts->dropped)
                : std::string();
  return fmt::format("step {}/{}, epoch {}/{}, loss {:.4f}{}{}, {:.0f} samples/s{}, {} left", s.step, s.total_steps,
                     s.epoch, s.epochs, s.loss, scale, experts, s.samples_per_s, s.shares ? shares_text(*s.shares) : "",
                     duration_text(s.left));
}

std::string progress_bar(const ProgressState& s, int width) {
  const auto step = fmt::format("{:>{}}/{}", s.step, fmt::formatted_size("{}", s.total_steps), s.total_steps);
  const auto left = duration_text(s.left);
  const std::string texts[] = {fmt::format("step {}, epoch {}/{}, loss {:.4f}, {:.0f} samples/s, {} left", step,
                                           s.epoch, s.epochs, s.loss, s.samples_per_s, left),
                               fmt::format("{}, epoch {}/{}, loss {:.4f}, {:.0f}/s, {} left", step, s.epoch, s.epochs,
                                           s.loss, s.samples_per_s, left),
                               fmt::format("{}, loss {:.4f}, {} left", step, s.loss, left)};
  for (const auto& text : texts) {
    // A multiple of five, so that the bar does not change its length with every number.
    const int room = std::min(30, (width - static_cast<int>(text.size()) - 3) / 5 * 5);
    if (room >= (&text == texts ? 10 : 5)) return fmt::format("[{}] {}", filled(s, room), text);
  }
  return texts[2].substr(0, static_cast<std::size_t>(std::max(width, 0)));
}

std::string figures_text(const Evaluation& evaluation) {
  std::string text;
  if (evaluation.accuracy) text += fmt::format(", accuracy {:.2f} %", 100 * *evaluation.accuracy);
  for (const auto& [name, value] : evaluation.others) text += fmt::format(", {} {:.4f}", name, value);
  return text;
}

std::string evaluation_text(const Evaluation& evaluation) {
  return fmt::format("test loss {:.4f}{}", evaluation.loss, figures_text(evaluation));
}

std::string evaluation_line(std::int64_t epoch, std::int64_t epochs, std::int64_t step, const Evaluation& evaluation) {
  const std::string place = step > 0 ? fmt::format(", step {}", step) : "";
  return fmt::format("epoch {}/{}{}: {}", epoch, epochs, place, evaluation_text(evaluation));
}

std::string staleness_line(std::span<const std::int64_t> counts) {
  std::vector<std::string> parts;
  for (std::size_t age = 0; age < counts.size(); ++age)
    if (counts[age] > 0) parts.push_back(fmt::format("{}: {}", age, counts[age]));
  return fmt::format("steps by the staleness of their gradient: {}", fmt::join(parts, ", "));
}

Progress::Progress(std::FILE* file, std::int64_t log_every, bool prints)
    : file_(file), log_every_(log_every), terminal_(file && ::isatty(::fileno(file)) == 1), prints_(prints) {}

Progress::~Progress() {
  if (!bar_drawn_) return;
  write(erase_bar);
}

void Progress::write(const std::string& text) {
  if ((std::fputs(text.c_str(), file_) < 0 || std::fflush(file_) != 0) && error_ == 0) error_ = errno;
}

bool Progress::step(const ProgressState& state) {
  if (!file_ || !prints_) return false;
  if (!terminal_) {
    const bool due = log_every_ > 0 && state.step / log_every_ > (state.step - state.steps) / log_every_;
    if (due) line(progress_line(state));
    return due;
  }
  const auto now = std::chrono::steady_clock::now();
  if (now - drawn_at_ < redraw_interval && state.step < state.total_steps) return false;
  drawn_at_ = now;
  write(fmt::format("\r{}\x1b[K", progress_bar(state, columns_of(file_) - 1)));
  bar_drawn_ = true;
  return false;
}

// One write erases the bar and prints the line: between two writes an empty row would be visible.
void Progress::line(const std::string& text) {
  if (!file_ || !prints_) return;
  write(fmt::format("{}{}\n", bar_drawn_ ? erase_bar : "", text));
  bar_drawn_ = false;
}

}  // namespace ddprun::trainer
