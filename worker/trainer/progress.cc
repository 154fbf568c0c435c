#include "ddprun/worker/trainer/progress.h"

#include <algorithm>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

namespace ddprun::trainer {
namespace {

constexpr auto redraw_interval = std::chrono::milliseconds(100);
constexpr int default_columns = 80;

int columns_of(std::FILE* file) {
  winsize size{};
  return ::ioctl(::fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : default_columns;
}

}  // namespace

std::string duration_text(std::chrono::duration<double> duration) {
  const auto seconds = static_cast<std::int64_t>(std::max(0.0, duration.count()) + 0.5);
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min {:02} s", seconds / 60, seconds % 60);
  return fmt::format("{} h {:02} min", seconds / 3600, seconds / 60 % 60);
}

std::string progress_line(const ProgressState& s) {
  return fmt::format("step {}/{}, epoch {}/{}, loss {:.4f}, {:.0f} samples/s, {} left", s.step, s.total_steps, s.epoch,
                     s.epochs, s.loss, s.samples_per_s, duration_text(s.left));
}

std::string progress_bar(const ProgressState& s, int width) {
  const auto text = progress_line(s);
  const int room = std::min(30, width - static_cast<int>(text.size()) - 3);
  if (room < 5) return text.substr(0, static_cast<std::size_t>(std::max(width, 0)));
  const auto done = static_cast<int>(s.total_steps > 0 ? room * s.step / s.total_steps : 0);
  std::string bar(static_cast<std::size_t>(done), '=');
  if (done < room) bar += '>';
  bar.resize(static_cast<std::size_t>(room), ' ');
  return fmt::format("[{}] {}", bar, text);
}

std::string evaluation_line(std::int64_t epoch, std::int64_t epochs, const Evaluation& evaluation) {
  auto line = fmt::format("epoch {}/{}: test loss {:.4f}", epoch, epochs, evaluation.loss);
  if (evaluation.accuracy) line += fmt::format(", accuracy {:.2f} %", 100 * *evaluation.accuracy);
  return line;
}

Progress::Progress(std::FILE* file, std::int64_t log_every)
    : file_(file), log_every_(log_every), terminal_(file && ::isatty(::fileno(file)) == 1) {}

Progress::~Progress() {
  clear_bar();
}

void Progress::clear_bar() {
  if (!bar_drawn_) return;
  std::fputs("\r\x1b[K", file_);
  std::fflush(file_);
  bar_drawn_ = false;
}

void Progress::step(const ProgressState& state) {
  if (!file_) return;
  if (!terminal_) {
    if (log_every_ > 0 && state.step % log_every_ == 0) line(progress_line(state));
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (now - drawn_at_ < redraw_interval && state.step < state.total_steps) return;
  drawn_at_ = now;
  fmt::print(file_, "\r{}\x1b[K", progress_bar(state, columns_of(file_) - 1));
  std::fflush(file_);
  bar_drawn_ = true;
}

void Progress::line(const std::string& text) {
  if (!file_) return;
  clear_bar();
  fmt::print(file_, "{}\n", text);
  std::fflush(file_);
}

}  // namespace ddprun::trainer
