#include "tests/bench/collectives/plain_gloo.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "common/error.h"

namespace ddprun::bench {
namespace {

// Every rank calls this function.
std::shared_ptr<::gloo::Context> connect(SharedMapping& mapping, int rank, bool polling) {
  auto* const folder = reinterpret_cast<char*>(mapping.message(0));
  if (rank == 0) {
    std::strcpy(folder, "/tmp/ddprun-bench-XXXXXX");
    if (!::mkdtemp(folder))
      throw make_error(Errc::io, "cannot create a folder for the rendezvous: {}", errno_text(errno));
  }
  mapping.barrier(rank);
  auto context = std::make_shared<::gloo::rendezvous::Context>(rank, mapping.ranks());
  ::gloo::rendezvous::FileStore store(folder);
  auto device = ::gloo::transport::tcp::CreateDevice("127.0.0.1");
  context->connectFullMesh(store, device);
  for (int r = 0; polling && r < mapping.ranks(); ++r)
    if (r != rank) context->getPair(r)->setSync(true, true);
  mapping.barrier(rank);
  if (rank == 0) std::filesystem::remove_all(folder);
  return context;
}

class PlainGloo : public Subject {
 public:
  PlainGloo(std::string algorithm, SharedMapping& mapping, int rank)
      : algorithm_(std::move(algorithm)), context_(connect(mapping, rank, algorithm_ == "halving_doubling")) {}
  std::string name() const override { return "Gloo " + algorithm_; }
  bool has_threads() const override { return algorithm_ != "halving_doubling"; }
  void* input(std::size_t bytes) override {
    if (bytes != values_.size() * sizeof(float)) {
      halving_doubling_.reset();
      values_.resize(bytes / sizeof(float));
      if (algorithm_ == "halving_doubling")
        halving_doubling_ = std::make_unique<::gloo::AllreduceHalvingDoubling<float>>(
            context_, std::vector<float*>{values_.data()}, static_cast<int>(values_.size()));
    }
    return values_.data();
  }
  const void* output() override { return values_.data(); }
  void run() override {
    if (halving_doubling_) return halving_doubling_->run();
    ::gloo::AllreduceOptions options(context_);
    options.setAlgorithm(algorithm_ == "ring" ? ::gloo::AllreduceOptions::Algorithm::RING
                                              : ::gloo::AllreduceOptions::Algorithm::BCUBE);
    options.setOutput(values_.data(), values_.size());
    options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&::gloo::sum<float>));
    ::gloo::allreduce(options);
  }

 private:
  const std::string algorithm_;
  std::shared_ptr<::gloo::Context> context_;
  std::vector<float> values_;
  std::unique_ptr<::gloo::AllreduceHalvingDoubling<float>> halving_doubling_;
};

}  // namespace

std::unique_ptr<Subject> plain_gloo(const std::string& algorithm, SharedMapping& mapping, int rank) {
  for (const auto* each : {"ring", "bcube", "halving_doubling"})
    if (algorithm == each) return std::make_unique<PlainGloo>(algorithm, mapping, rank);
  throw make_error(Errc::usage, "unknown Gloo algorithm {}; known are ring, bcube, halving_doubling", algorithm);
}

}  // namespace ddprun::bench
