#include "worker/parallel/forms/context/ring_shift.h"

#include "common/error.h"
#include "worker/comm/operations/call.h"
#include "tests/support/catch.h"
#include "tests/unit/parallel/forms/tensor/tensor_model.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

// A group that refuses to send, and reports whether a receive had ended when it was aborted.
class ReceivingGroup : public ProcessGroup {
 public:
  explicit ReceivingGroup(ProcessGroup& below) : below_(below) {}
  int rank() const override { return below_.rank(); }
  int size() const override { return below_.size(); }
  std::string_view backend() const override { return "receiving"; }
  WorkPtr start(const comm::Call& call) override {
    if (call.operation.kind == comm::OpKind::send) throw Error(Errc::unsupported, "no sends here");
    return receive = below_.start(call);
  }
  std::optional<Error> failure() const override { return below_.failure(); }
  void abort(const std::string& reason) override { below_.abort(reason); }

  WorkPtr receive;

 private:
  ProcessGroup& below_;
};

}  // namespace

TEST_CASE("a shift that cannot send leaves no receive that writes to its memory") {
  run_ranks(2, [](ProcessGroup& below) {
    if (below.rank() == 1) return;
    ReceivingGroup receiving(below);
    CountedGroup group(receiving);
    std::string refusal;
    try {
      const RingShift shift(group, Tensor::zeros({4}, DType::float32), RingShift::Kind::gradients);
    } catch (const Error& e) {
      refusal = e.what();
    }
    require(refusal == "no sends here", refusal);
    require(receiving.receive && receiving.receive->done(), "the receive goes on");
    require(below.failure().has_value(), "the group is not aborted");
  });
}
