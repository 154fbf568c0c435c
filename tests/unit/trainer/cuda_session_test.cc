// Training steps on emulated CUDA devices: the host's waits for a device, and that nothing is lost by waiting less.
#include <cmath>
#include <fstream>

#include "worker/comm/backends/staged/staged_group.h"
#include "worker/comm/group_options.h"
#include "worker/comm/registry/device_group.h"
#include "worker/tasks/tasks.h"
#include "worker/tensor/cuda/cuda_device.h"
#include "worker/trainer/session/train_session.h"
#include "tests/numerics/layout_job.h"
#include "tests/support/emulated_cuda.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

[[maybe_unused]] const bool has_devices = test::use_emulated_cuda(2);
constexpr int steps = 12, log_every = 5;

// The duration and the results of each step of a rank.
struct Step {
  std::uint64_t waits;
  trainer::StepResult result;
  std::string counts;  // those that the host has after it
  std::int64_t skipped_steps;
};
using Steps = std::vector<Step>;

std::uint64_t waits(Device device) {
  const auto& on = cuda::CudaDevice::of(device);
  return on.api().synchronizations(on.context());
}

// Returns how often the host has waited for the device of a rank, or for those that its model is divided among.
std::uint64_t waits_of(const TrainingJob& job, Device own) {
  if (job.config().parallel.devices.empty()) return waits(own);
  return waits({DeviceType::cuda, 0}) + waits({DeviceType::cuda, 1});
}

struct Rank {
  std::unique_ptr<ProcessGroup> group;
  Device device;
};

// Ranks that are threads, each with a device, whose memory passes through the host.
std::vector<Rank> make_ranks(int size, DeviceType type) {
  auto of_host = testing::make_thread_groups(size, std::chrono::seconds(60)),
       of_devices = testing::make_thread_groups(size, std::chrono::seconds(60));
  std::vector<Rank> ranks;
  for (int r = 0; r < size; ++r) {
    const auto at = static_cast<std::size_t>(r);
    if (type == DeviceType::cpu) {
      ranks.push_back({std::move(of_host[at]), Device{}});
      continue;
    }
    GroupOptions options;
    options.rank = r;
    options.size = size;
    options.config.device = r;
    ranks.push_back({comm::make_device_group(std::move(of_host[at]), options,
                                             [&](const GroupOptions&) {
                                               return comm::make_staged_group(
                                                   std::move(of_devices[at]),
                                                   {.device = r, .timeout = std::chrono::seconds(60)});
                                             }),
                     {DeviceType::cuda, r}});
  }
  return ranks;
}

// Describes what the host knows of the steps that were made.
std::string counts_of(const trainer::TrainState& state) {
  std::string text = "optimizer " + std::to_string(state.optimizer->step_count()) + " of " +
                     std::to_string(state.run.step) + ", skipped " + std::to_string(state.run.skipped_steps);
  if (state.scaler)
    text +=
        ", scale " + std::to_string(state.scaler->scale()) + " for " + std::to_string(state.scaler->state().good_steps);
  if (state.outliers) text += ", norms " + std::to_string(state.outliers->norms().size());
  if (state.ema) text += state.ema->started() ? ", averages" : ", no averages";
  return text;
}

Steps train(const TrainingJob& job, Rank& rank, int count, int stop_at) {
  const auto task = tasks::make_task("auto", {.layout = job.datasets().train->layout()});
  auto state = trainer::make_train_state(job.config(), {}, job.datasets().train->layout(), *task, 0, {}, rank.device);
  trainer::TrainSession session({.config = job.config(), .datasets = job.datasets(), .task = *task}, state,
                                *rank.group);
  Steps all;
  for (int step = 1; step <= count; ++step) {
    const bool on_device = rank.device.type == DeviceType::cuda;
    const auto before = on_device ? waits_of(job, rank.device) : 0;
    auto result = session.step(step == stop_at);
    all.push_back({on_device ? waits_of(job, rank.device) - before : 0, std::move(result), counts_of(state),
                   state.run.skipped_steps});
  }
  return all;
}

// Returns the steps by rank.
std::vector<Steps> train(const std::string& text, int ranks, DeviceType type = DeviceType::cuda, int count = steps,
                         int stop_at = 0) {
  const TrainingJob job(text);
  auto all = make_ranks(ranks, type);
  std::vector<Steps> found(all.size());
  std::vector<std::exception_ptr> failures(all.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < all.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        found[r] = train(job, all[r], count, stop_at);
      } catch (...) {
        failures[r] = std::current_exception();
        all[r].group->abort("a rank of the test failed");
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return found;
}

struct Model {
  std::string name, keys;
};

class Models {
 public:
  std::vector<Model> all() const {
    const std::string digits = "[data]\nname = digits\nsamples = 320\ntest_samples = 8\n";
    return {{"the CNN", digits + "[model]\nname = cnn\n"},
            {"the MLP", digits + "[model]\nname = mlp\nhidden = 16 8\n"},
            {"a small GPT", text_.keys({.context = 8, .layers = 2, .width = 16, .heads = 2})}};
  }

 private:
  TextFile text_;
};

// more are other keys of [train].
std::string train_keys(const std::string& more, int every = log_every, int batch_size = 2) {
  return "[train]\ndevice = cuda\naccumulate = 2\nbatch_size = " + std::to_string(batch_size) +
         "\nlog_every = " + std::to_string(every) + "\n" + more;
}
const std::string adam_step = "[optim]\nname = adamw\nlr = 0.001\nweight_decay = 0.01\n";
const std::string clipped = adam_step + "clip_norm = 0.5\n";

std::string on_cpu(std::string text) {
  const std::string cuda = "device = cuda\n";
  return text.erase(text.find(cuda), cuda.size());
}

// Returns the figures of all steps, whenever they were available.
std::vector<trainer::StepFigures> figures_of(const Steps& all) {
  std::vector<trainer::StepFigures> figures;
  for (const Step& step : all) {
    const auto& result = step.result;
    figures.insert(figures.end(), result.late_figures.begin(), result.late_figures.end());
    if (result.has_figures)
      figures.push_back({.step = static_cast<std::int64_t>(figures.size()) + 1,
                         .loss = result.loss,
                         .grad_norm = result.grad_norm,
                         .loss_scale = result.loss_scale,
                         .skipped = result.skipped,
                         .skipped_steps = step.skipped_steps});
  }
  return figures;
}

}  // namespace

TEST_CASE("between two log lines no step waits for its device, and at a log line one wait is enough") {
  const Models models;
  for (const auto& [name, keys] : models.all())
    for (const std::string precision : {"fp32", "bf16", "fp16\nloss_scale = 1024"})
      for (const int ranks : {1, 2})
        for (const Steps& rank : train(keys + train_keys("precision = " + precision + "\nema = 0.9\n") +
                                           (precision == "bf16" ? adam_step + "clip_value = 0.3\n" : clipped) +
                                           (precision == "fp32" ? "skip_outliers = 5\n" : ""),
                                       ranks))
          for (int i = 1; i < steps; ++i) {  // the first one makes plans and allocates memory
            INFO(name << ", " << precision << ", " << ranks << " ranks, step " << i + 1);
            const Step& step = rank[static_cast<std::size_t>(i)];
            const bool is_read = (i + 1) % log_every == 0;
            CHECK(step.waits == (is_read ? 1 : 0));
            CHECK(step.result.has_figures == is_read);
          }
}

TEST_CASE("a process whose model is divided among devices waits for none of them in a step") {
  const auto found = train(Models().all()[1].keys + train_keys("precision = fp16\nloss_scale = 1024\nema = 0.9\n", 0) +
                               clipped + "skip_outliers = 5\n[parallel]\ndevices = cuda:0 cuda:1\nsplit = fc2\n",
                           1)[0];
  for (int i = 1; i < steps; ++i) CHECK(found[static_cast<std::size_t>(i)].waits == 0);
}

TEST_CASE("the figures of steps that were not waited for come with a later step, as the CPU finds them") {
  const Models models;
  for (const auto& [name, keys] : models.all()) {
    INFO(name);
    const auto text = keys + train_keys("") + clipped;
    const auto found = figures_of(train(text, 2)[0]), expected = figures_of(train(on_cpu(text), 2, DeviceType::cpu)[0]);
    REQUIRE(expected.size() == steps);
    REQUIRE(found.size() == 10);  // the last line was at step 10
    for (std::size_t i = 0; i < found.size(); ++i) {
      INFO("step " << i + 1);
      CHECK(found[i].step == static_cast<std::int64_t>(i) + 1);
      CHECK(std::abs(found[i].loss - expected[i].loss) < 1e-4);
      REQUIRE(found[i].grad_norm.has_value());
      CHECK(std::abs(*found[i].grad_norm - *expected[i].grad_norm) < 1e-4);
    }
  }
}

TEST_CASE("a step that ends a run or an epoch, or before which a rank asks for a stop, has its figures") {
  const auto keys = Models().all()[1].keys;
  const auto ended = train(keys + train_keys("max_steps = 7\n", 0) + clipped, 2, DeviceType::cuda, 7)[1];
  CHECK(ended[6].result.has_figures);
  CHECK(ended[6].result.late_figures.size() == 5);  // those of steps 2 to 6
  const auto stopped = train(keys + train_keys("", 0) + clipped, 2, DeviceType::cuda, 4, 3)[0];
  CHECK(stopped[2].result.stop_requested);
  CHECK(stopped[2].result.has_figures);
  CHECK(stopped[2].result.late_figures.size() == 1);
  CHECK_FALSE(stopped[1].result.has_figures);
  const auto epoch = train(keys + train_keys("epochs = 2\n", 0, 20) + clipped, 2, DeviceType::cuda, 5)[0];
  CHECK(epoch[3].result.ends_epoch);
  CHECK(epoch[3].result.has_figures);
}

// Compares the figures of a rank's runs on a device and on the CPU, and the states after them.
void check_like_cpu(const Steps& on_device, const Steps& on_host) {
  const auto found = figures_of(on_device), expected = figures_of(on_host);
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    INFO("step " << i + 1);
    CHECK(found[i].skipped == expected[i].skipped);
    CHECK(found[i].skipped_steps == expected[i].skipped_steps);
    CHECK(found[i].loss_scale == expected[i].loss_scale);
    CHECK(std::abs(found[i].loss - expected[i].loss) < 2e-3);
    CHECK(found[i].grad_norm.has_value() == expected[i].grad_norm.has_value());
    if (found[i].grad_norm) CHECK(std::abs(*found[i].grad_norm / *expected[i].grad_norm - 1) < 1e-2);
  }
  CHECK(found.back().skipped_steps > 0);
  CHECK(found.back().skipped_steps < std::ssize(on_device));
  CHECK(on_device.back().counts == on_host.back().counts);
}

void check_like_cpu(const std::string& text, int ranks, int count) {
  CAPTURE(text, ranks);
  const auto on_device = train(text, ranks, DeviceType::cuda, count),
             on_host = train(on_cpu(text), ranks, DeviceType::cpu, count);
  for (std::size_t rank = 0; rank < on_device.size(); ++rank) {
    INFO("rank " << rank);
    check_like_cpu(on_device[rank], on_host[rank]);
  }
}

TEST_CASE("steps of which the gradients overflow in fp16 are skipped on a device as on the CPU, and lower the scale") {
  const int ranks = GENERATE(1, 2);
  const std::string scale =
      "precision = fp16\nema = 0.9\nloss_scale = 1e9\nloss_scale_backoff = 0.1\n"
      "loss_scale_growth_interval = 2\nmax_steps = 12\n";
  check_like_cpu(Models().all()[1].keys + train_keys(scale) + clipped, ranks, 12);
}

TEST_CASE("outliers are skipped on a device as on the CPU") {
  const int ranks = GENERATE(1, 2);
  check_like_cpu(
      Models().all()[1].keys + train_keys("ema = 0.9\nmax_steps = 14\n") + clipped + "skip_outliers = 1.0001\n", ranks,
      14);
}

TEST_CASE("ranks with gradients of their own skip the same steps on devices") {
  const std::string job = Models().all()[1].keys + train_keys("ema = 0.9\nmax_steps = 14\n") + clipped +
                          "skip_outliers = 1.0001\n[parallel]\n";
  check_like_cpu(job + "strategy = local_sgd\nlocal_sgd_period = 3\n", 2, 14);
  check_like_cpu(job + "ignored_parameters = fc1.weight\n", 2, 14);
}

TEST_CASE("a momentum that is dampened starts with the first step that a device makes") {
  const std::string scale = "precision = fp16\nema = 0.9\nloss_scale = 1e9\nloss_scale_backoff = 0.1\nmax_steps = 12\n";
  check_like_cpu(
      Models().all()[1].keys + train_keys(scale) + "[optim]\nname = sgd\nlr = 0.1\nmomentum = 0.9\ndampening = 0.5\n",
      1, 12);
}
