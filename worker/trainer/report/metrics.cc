#include "ddprun/worker/trainer/report/metrics.h"

#include <cerrno>
#include <cmath>
#include <fcntl.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <fmt/ranges.h>

#include "ddprun/common/atomic_file.h"
#include "ddprun/common/error.h"

namespace ddprun::trainer {
namespace {

namespace json = boost::json;

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

[[noreturn]] void fail(const char* what, const std::filesystem::path& path) {
  throw make_error(Errc::io, "cannot {} {}: {}", what, path.string(), errno_text(errno));
}

// Whether a line is a record that is kept by a run that resumes at last_step.
bool belongs(std::string_view line, std::int64_t last_step) {
  json::error_code status;
  const auto value = json::parse({line.data(), line.size()}, status);
  if (status || !value.is_object()) return false;
  const auto* step = value.get_object().if_contains("step");
  return !step || (step->is_int64() && step->get_int64() <= last_step);
}

}  // namespace

std::string to_json(const StepRecord& r) {
  auto text = fmt::format(
      R"({{"step": {}, "epoch": {}, "loss": {}, "lr": {}, "samples_per_s": {:.1f}, "compute": {:.4f}, "wait": {:.4f})",
      r.step, r.epoch, number(r.loss), number(r.lr), r.samples_per_s, r.compute, r.wait);
  if (r.grad_norm) text += fmt::format(R"(, "grad_norm": {})", number(*r.grad_norm));
  if (r.loss_scale) text += fmt::format(R"(, "loss_scale": {})", number(*r.loss_scale));
  if (r.loss_scale || r.skipped_steps > 0) text += fmt::format(R"(, "skipped_steps": {})", r.skipped_steps);
  if (r.experts)
    text += fmt::format(R"(, "expert_load": {}, "dropped": {})", number(r.experts->load), number(r.experts->dropped));
  if (r.bytes_sent > 0) text += fmt::format(R"(, "bytes_sent": {})", r.bytes_sent);
  if (!r.staleness.empty()) text += fmt::format(R"(, "staleness": [{}])", fmt::join(r.staleness, ", "));
  return text + "}";
}

std::string to_json(const EvalRecord& r) {
  auto text = fmt::format(R"({{"epoch": {}, "eval_loss": {}, "accuracy": {})", r.epoch, number(r.eval_loss),
                          r.accuracy ? number(*r.accuracy) : "null");
  for (const auto& [name, value] : r.others) text += fmt::format(R"(, "{}": {})", name, number(value));
  return text + "}";
}

std::string_view metrics_up_to(std::string_view text, std::int64_t last_step) {
  if (last_step == 0) return {};
  std::size_t end = 0;
  for (std::size_t newline; (newline = text.find('\n', end)) != std::string_view::npos; end = newline + 1) {
    if (!belongs(text.substr(end, newline - end), last_step)) break;
  }
  return text.substr(0, end);
}

MetricsFile::MetricsFile(const std::filesystem::path& path, std::int64_t last_step) : path_(path) {
  std::error_code ignored;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), ignored);
  fd_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND, 0644));
  if (!fd_) fail("open", path_);
  if (!std::filesystem::is_regular_file(path)) return;  // a pipe or /dev/stdout holds no earlier records
  const auto text = last_step == 0 ? std::string() : read_whole_file(path);
  if (::ftruncate(fd_.get(), static_cast<off_t>(metrics_up_to(text, last_step).size())) != 0) fail("cut", path_);
}

void MetricsFile::add_line(const std::string& line) {
  const auto whole = line + "\n";
  std::string_view rest = whole;
  while (!rest.empty()) {
    const ssize_t n = ::write(fd_.get(), rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("write", path_);
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
}

void MetricsFile::flush() {
  if (::fsync(fd_.get()) != 0 && errno != EINVAL) fail("flush", path_);  // EINVAL: a pipe
}

}  // namespace ddprun::trainer
