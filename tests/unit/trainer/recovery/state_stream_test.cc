#include "worker/trainer/recovery/state_stream.h"

#include <atomic>
#include <string>
#include <thread>

#include "common/error.h"
#include "worker/trainer/recovery/state_receiver.h"
#include "worker/trainer/recovery/state_sender.h"
#include "tests/support/catch.h"
#include "tests/support/thread_group.h"
#include "tests/unit/trainer/recovery/whole_state.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace ddprun::trainer;

namespace {

std::string job_text(const std::string& optimizer) {
  return "[model]\nname = cnn_bn\n[data]\nname = digits\nsamples = 64\ntest_samples = 8\n"
         "[train]\nepochs = 1000\nbatch_size = 4\nprecision = fp16\nloss_scale_growth_interval = 2\n"
         "[optim]\nskip_outliers = 3\nwarmup = 1000\nname = " +
         optimizer + "\n";
}

constexpr std::size_t small_piece = std::size_t{16} << 10;  // larger parameters are sent while a step waits
constexpr std::size_t one_update = 1, plenty = std::size_t{1} << 30;

// A run of one rank, and a process that is to join it.
struct SentRun {
  explicit SentRun(const std::string& optimizer, std::size_t memory = plenty) : job(job_text(optimizer)) {
    session = session_of(run, *own[0]);
    make_steps(*session, backup, 3);
    sender.emplace(run.state, std::move(pair[0]), memory, small_piece);
  }
  ~SentRun() {
    sender.reset();
    if (receiver.joinable()) receiver.join();
  }

  void train(int steps) { make_steps(*session, backup, steps); }
  void start_receiver() {
    receiver = std::thread([this] {
      try {
        receive_state(newcomer.state, newcomer_backup, *pair[1], [this] { caught_up = true; });
      } catch (const Error& error) {
        failure = error.what();
      }
      ended = true;
    });
  }

  TrainingJob job;
  Replica run{job}, newcomer{job};
  StepBackup backup{run.state, [](std::int64_t) {}}, newcomer_backup{newcomer.state, [](std::int64_t) {}};
  std::vector<std::unique_ptr<ProcessGroup>> own = make_thread_groups(1), pair = make_thread_groups(2);
  std::unique_ptr<Session> session;
  std::optional<StateSender> sender;
  std::atomic<bool> caught_up = false, ended = false;
  std::string failure;
  std::thread receiver;
};

}  // namespace

TEST_CASE("a process gets the state of a run that goes on, and has its bits") {
  const std::string optimizer = GENERATE("sgd\nmomentum = 0.9", "adam", "lamb", "muon");
  const std::size_t memory = GENERATE(one_update, plenty);
  CAPTURE(optimizer, memory);
  SentRun sent(optimizer, memory);
  while (sent.sender->figures().updates == 0) sent.train(1);  // the first parameters are sent before this step
  sent.start_receiver();
  while (!sent.caught_up && !sent.ended) sent.train(1);
  sent.train(2);
  sent.backup.end_events();
  CHECK(sent.sender->finish(rest_of(sent.run.state, sent.backup)));
  sent.receiver.join();
  CHECK(sent.failure.empty());
  CHECK(digest(sent.newcomer.state) == digest(sent.run.state));
  CHECK(sent.newcomer.state.run.step == sent.run.state.run.step);
  CHECK(sent.newcomer_backup.events_done());
  for (const auto& [name, parameter] : sent.newcomer.state.model->named_parameters())
    CHECK_FALSE(parameter.grad().defined());
}

TEST_CASE("processes of two nodes get the state at once, though the second comes later, and have its bits") {
  const std::size_t memory = GENERATE(one_update, plenty);
  CAPTURE(memory);
  SentRun sent("adam", memory);
  while (sent.sender->figures().updates == 0) sent.train(1);
  sent.start_receiver();
  sent.train(2);
  Replica later(sent.job);
  StepBackup later_backup(later.state, [](std::int64_t) {});
  auto pair = make_thread_groups(2);
  StateSender later_sender(sent.run.state, std::move(pair[0]), memory, small_piece);
  std::atomic<bool> caught_up = false;
  std::thread receiver([&] { receive_state(later.state, later_backup, *pair[1], [&] { caught_up = true; }); });
  while (!sent.caught_up || !caught_up) sent.train(1);
  sent.train(2);
  sent.backup.end_events();
  CHECK(sent.sender->finish(rest_of(sent.run.state, sent.backup)));
  CHECK(later_sender.finish(rest_of(sent.run.state, sent.backup)));
  sent.receiver.join();
  receiver.join();
  CHECK(sent.failure.empty());
  CHECK(digest(sent.newcomer.state) == digest(sent.run.state));
  CHECK(digest(later.state) == digest(sent.run.state));
}

TEST_CASE("a process that has not caught up gets no end of the state, and learns that it comes no more") {
  SentRun sent("adam");
  CHECK_FALSE(sent.sender->finish(rest_of(sent.run.state, sent.backup)));
  sent.start_receiver();
  sent.sender.reset();
  sent.receiver.join();
  CHECK_THAT(sent.failure, Catch::Contains("the run does not go on as it was"));
}

TEST_CASE("a sender that does not answer in time is lost, as the state can be copied later") {
  const TrainingJob job(job_text("adam"));
  Replica newcomer(job);
  StepBackup backup(newcomer.state, [](std::int64_t) {});
  const auto pair = make_thread_groups(2, std::chrono::milliseconds(10));
  try {
    receive_state(newcomer.state, backup, *pair[1], [] {});
    FAIL("nobody sends");
  } catch (const Error& error) {
    CHECK(error.code() == Errc::connection_lost);
  }
}

TEST_CASE("a run goes on when a process is lost that gets its state") {
  SentRun sent("adam", small_piece);
  while (sent.sender->figures().updates == 0) sent.train(1);
  sent.pair[1].reset();
  sent.train(3);
  CHECK_FALSE(sent.sender->finish(rest_of(sent.run.state, sent.backup)));
}

TEST_CASE("headers of a state that is sent are what they were, and others are refused") {
  const StreamHeader update{
      .kind = StreamHeader::Kind::update, .step_count = 7, .lr = 0.1, .with_gradient = {0, 2, 5}, .caught_up = true};
  CHECK(decode_stream_header(encode(update)) == update);
  const StreamHeader rest{.kind = StreamHeader::Kind::rest, .rest = std::string("{}\n\0\1", 5)};
  CHECK(decode_stream_header(encode(rest)) == rest);
  CHECK(decode_stream_header(encode(StreamHeader{})) == StreamHeader{});
  for (const std::string text :
       {"", "\n", "9 0 0 0 0 0 0 \n", "1 5 2 0 0 0 0 \n", "2 0 0 1 0 0 3 1 2\n", "0 0 0 0 0 0 0"})
    CHECK_THROWS_AS(decode_stream_header(text), Error);
}
