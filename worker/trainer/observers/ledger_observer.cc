#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/random.h"
#include "worker/comm/collectives.h"
#include "worker/trainer/ledger/ledger_file.h"
#include "worker/trainer/observers/observers.h"

namespace ddprun::trainer {
namespace {

// data.ledger: one rank of each host writes the sessions of the run and their steps. All ranks have one, since they
// agree on the name of a session, which is part of the state from then on.
class LedgerObserver : public Observer {
 public:
  LedgerObserver(const std::filesystem::path& path, std::int64_t epoch_samples, bool writes)
      : epoch_samples_(epoch_samples) {
    if (writes) file_.emplace(path);
  }

  void session_started(Session& session) override {
    const auto& run = session.state().run;
    id_ = broadcast_bytes(session.group(), session.is_first() ? random_hex(8) : "", 0);
    std::vector<std::int64_t> reached{last_};
    allreduce(session.group(), reached, ReduceOp::max);
    add(LedgerSession{.id = id_,
                      .parent = run.ledger,
                      .after = run.step,
                      .ranks = session.group().size(),
                      .seed = run.seed,
                      .epoch_samples = epoch_samples_,
                      .rolled_back_from = reached[0] > run.step ? std::optional(reached[0]) : std::nullopt});
    last_ = run.step;
  }

  void step_finished(const StepEvent& event) override {
    auto& run = event.session.state().run;
    const auto& result = event.result;
    add(LedgerStep{.session = id_,
                   .step = run.step,
                   .epoch = result.epoch,
                   .first = result.first,
                   .samples = result.samples,
                   .ends_epoch = result.ends_epoch});
    run.ledger = id_;
    last_ = run.step;
  }

  void before_checkpoint() override {
    if (file_) file_->flush();
  }

 private:
  void add(const LedgerLine& line) {
    if (file_) file_->add(line);
  }

  const std::int64_t epoch_samples_;
  std::optional<LedgerFile> file_;  // set at the rank that writes it
  std::string id_;                  // that of the session
  std::int64_t last_ = 0;           // the last step of this process
};

}  // namespace

std::unique_ptr<Observer> make_ledger_observer(const ObserverContext& context, Observer&) {
  const auto& path = context.config.data.ledger;
  if (path.empty()) return nullptr;
  return std::make_unique<LedgerObserver>(path, context.epoch_samples, context.first_of_host);
}

}  // namespace ddprun::trainer
