#include "worker/comm/backends/mpi/mpi_group.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/error.h"
#include "worker/comm/backends/local/self_group.h"
#include "worker/comm/backends/mpi/mpi_collectives.h"
#include "worker/comm/backends/mpi/mpi_library.h"
#include "worker/comm/backends/mpi/mpi_notices.h"
#include "worker/comm/backends/mpi/mpi_transfers.h"
#include "worker/comm/bootstrap/await_ranks.h"
#include "worker/comm/execution/transport_group.h"

namespace ddprun::comm {
namespace {

// The time for which the last messages of a rank that has left may still arrive.
constexpr std::chrono::milliseconds linger_timeout{500};

// The ranks of MPI's world, by rank of the group. Each rank publishes the name of its MPI and its rank there.
std::vector<int> world_ranks(const std::vector<std::string>& published, const MpiLibrary& library) {
  std::vector<int> ranks;
  for (std::size_t r = 0; r < published.size(); ++r) {
    const auto& text = published[r];
    const auto space = std::min(text.find(' '), text.size());
    if (text.substr(0, space) != library.name()) {
      throw make_error(Errc::mismatch, "rank {} was started by the MPI {}, but this rank by {}", r,
                       text.substr(0, space), library.name());
    }
    int rank = -1;
    if (space < text.size()) std::from_chars(text.data() + space + 1, text.data() + text.size(), rank);
    if (const auto other = std::find(ranks.begin(), ranks.end(), rank); other != ranks.end() || rank < 0) {
      throw make_error(Errc::mismatch,
                       "rank {} and rank {} both have the rank {} in MPI: the back end mpi needs processes that were "
                       "started by one mpirun, srun --mpi or ddprun --mpi",
                       other - ranks.begin(), r, rank);
    }
    ranks.push_back(rank);
  }
  return ranks;
}

// Groups that form at the same time need different tags.
int tag_of(const std::string& prefix) {
  std::uint32_t hash = 2166136261u;
  for (const char each : prefix) hash = (hash ^ static_cast<unsigned char>(each)) * 16777619u;
  return static_cast<int>(hash % 32767u);
}

class MpiTransport : public Transport {
 public:
  explicit MpiTransport(const GroupOptions& options)
      : rank_info_{options.rank, options.size}, library_(MpiLibrary::instance(options.config.timeout)) {}

  void connect(Store& store, const std::string& prefix, Deadline deadline) override {
    const auto own = std::string(library_.name()) + " " + std::to_string(library_.rank());
    const auto published =
        exchange(store, prefix + "mpi/", rank_info_.rank, rank_info_.size, own, interrupted_, deadline);
    const auto give_up = [&] {
      if (interrupted_) throw make_error(Errc::aborted, "the group was given up while its communicator formed");
      if (deadline.expired()) throw make_error(Errc::timeout, "MPI has not created the group's communicator");
    };
    const auto communicator = library_.create_communicator(world_ranks(published, library_), tag_of(prefix), give_up);
    const MpiGroupContext context{library_, communicator, rank_info_, memory_, interrupted_};
    notices_.emplace(context);
    collectives_.emplace(context, *notices_);
    transfers_.emplace(context);
    connected_ = true;
  }

  TransportTraits traits() const override { return {.backend = "mpi", .linger_timeout = linger_timeout}; }
  void execute(const Collective& collective) override { collectives_->execute(collective); }
  NonblockingCollectives* nonblocking() override { return &*collectives_; }
  std::unique_ptr<Transfer> start_transfer(const Operation& operation, Span memory) override {
    return transfers_->start(operation, memory);
  }
  RegisteredBuffer allocate(std::size_t bytes) override { return memory_.allocate(bytes); }
  void interrupt() noexcept override {
    if (!interrupted_.exchange(true) && connected_) notices_->send();
  }

 private:
  const RankInfo rank_info_;
  MpiLibrary& library_;
  MpiMemory memory_;
  std::atomic<bool> interrupted_ = false, connected_ = false;
  // The communicator is never freed: a message that nobody received would reach the group that gets its number next.
  std::optional<MpiNotices> notices_;
  std::optional<MpiCollectives> collectives_;
  std::optional<MpiTransfers> transfers_;
};

}  // namespace

std::unique_ptr<ProcessGroup> make_mpi_group(const GroupOptions& options) {
  if (options.size == 1) return make_self_group();
  return make_transport_group(std::make_shared<MpiTransport>(options), options, {"mpi", make_mpi_group});
}

}  // namespace ddprun::comm
