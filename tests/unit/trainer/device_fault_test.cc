#include "worker/trainer/report/device_fault.h"

#include "common/host_port.h"
#include "worker/trainer/config/device_settings.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::trainer;

namespace {

constexpr std::size_t gib = std::size_t{1} << 30;
const Device device{DeviceType::cuda, 1};

DeviceMemoryUse use_of(std::initializer_list<std::pair<MemoryOwner, std::size_t>> held) {
  DeviceMemoryUse use{.total = 80 * gib};
  for (const auto& [owner, bytes] : held) use.owners[static_cast<std::size_t>(owner)] = bytes;
  return use;
}

OutOfDeviceMemory exhausted(MemoryOwner wanted_for, const DeviceMemoryUse& use, std::size_t wanted = gib) {
  return {device, wanted, wanted_for, use};
}

// Returns a job for which the advice does not depend on whether devices have ZeRO.
TrainConfig divided_job() {
  TrainConfig config;
  config.parallel.zero = 3;
  return config;
}

}  // namespace

TEST_CASE("advice on memory is about what holds most of it") {
  TrainConfig config = divided_job();
  config.model.name = "gpt";
  const auto activations = use_of({{MemoryOwner::activations, 60 * gib}, {MemoryOwner::optimizer, 10 * gib}});
  CHECK(
      memory_advice(exhausted(MemoryOwner::activations, activations), config) ==
      "a smaller train.batch_size with a larger train.accumulate or train.precision = bf16 or optim.name = sgd, which "
      "keeps one number for each weight at most");
  const auto state = use_of({{MemoryOwner::optimizer, 60 * gib}, {MemoryOwner::activations, 10 * gib}});
  CHECK_THAT(memory_advice(exhausted(MemoryOwner::optimizer, state), config), Catch::StartsWith("optim.name = sgd"));
}

TEST_CASE("advice on memory counts what is wanted too, and workspaces as activations") {
  TrainConfig config = divided_job();
  config.train.batch_size = 1;
  const auto both = use_of({{MemoryOwner::activations, 31 * gib}, {MemoryOwner::optimizer, 30 * gib}});
  CHECK_THAT(memory_advice(exhausted(MemoryOwner::optimizer, both, 0), config),
             Catch::StartsWith("train.precision = bf16"));
  CHECK_THAT(memory_advice(exhausted(MemoryOwner::optimizer, both, 2 * gib), config),
             Catch::StartsWith("optim.name = sgd"));
  auto workspaces = both;
  workspaces.workspaces = 10 * gib;
  CHECK_THAT(memory_advice(exhausted(MemoryOwner::optimizer, workspaces, 2 * gib), config),
             Catch::StartsWith("train.precision = bf16"));
}

TEST_CASE("activations that want more come first, whatever holds most") {
  TrainConfig config = divided_job();
  const auto use = use_of({{MemoryOwner::activations, gib}, {MemoryOwner::optimizer, 60 * gib}});
  CHECK_THAT(
      memory_advice(exhausted(MemoryOwner::activations, use), config),
      Catch::StartsWith("a smaller train.batch_size") && Catch::EndsWith("keeps one number for each weight at most"));
}

TEST_CASE("advice on memory names no setting that the job has") {
  TrainConfig config = divided_job();
  config.train.batch_size = 1;
  config.train.precision = "bf16";
  config.train.recompute = "blocks";
  config.model.name = "gpt";
  const auto activations = use_of({{MemoryOwner::activations, 60 * gib}});
  CHECK(memory_advice(exhausted(MemoryOwner::activations, activations), config) == "a smaller model.context");
  config.model.name = "mlp";
  CHECK(memory_advice(exhausted(MemoryOwner::activations, activations), config).empty());

  const auto state = use_of({{MemoryOwner::optimizer, 60 * gib}});
  config.optim.name = "sgd";
  config.optim.momentum = 0.9;
  CHECK_THAT(memory_advice(exhausted(MemoryOwner::optimizer, state), config), Catch::Contains("optim.momentum = 0"));
  config.optim.momentum = 0;
  config.train.ema = 0.99;
  const std::string advice = memory_advice(exhausted(MemoryOwner::optimizer, state), config);
  CHECK_THAT(advice, Catch::Contains("train.ema = 0") && !Catch::Contains("momentum"));
}

TEST_CASE("advice on memory names ZeRO as far as devices have it") {
  TrainConfig config, divided;
  divided.parallel.zero = 1;
  const bool on_devices = runs_on_devices(divided);
  const auto state = use_of({{MemoryOwner::optimizer, 60 * gib}});
  const bool named =
      memory_advice(exhausted(MemoryOwner::optimizer, state), config).find("parallel.zero") != std::string::npos;
  CHECK(named == on_devices);
}

TEST_CASE("a device that others use is a reason to take another one") {
  const TrainConfig config;
  auto use = use_of({{MemoryOwner::activations, 10 * gib}});
  use.others = 60 * gib;
  CHECK_THAT(memory_advice(exhausted(MemoryOwner::activations, use), config),
             Catch::StartsWith("another device (nvidia-smi"));
}

TEST_CASE("the error of a rank on a device names rank, device and host") {
  const TrainConfig config;
  WorkerEnv place;
  place.rank = 3;
  const Error fault = fault_of_rank(Error(Errc::io, "it is broken"), config, place, device);
  CHECK(fault.code() == Errc::io);
  CHECK(fault.what() == "rank 3 (cuda:1) on host " + local_host_name() + ": it is broken");
  const auto use = use_of({{MemoryOwner::activations, 60 * gib}});
  const Error short_of_memory = fault_of_rank(exhausted(MemoryOwner::activations, use), config, place, device);
  CHECK_THAT(short_of_memory.what(), Catch::Contains("cuda:1 is out of memory: 1.00 GiB are wanted for activations") &&
                                         Catch::Contains("; what helps: a smaller train.batch_size"));
}

TEST_CASE("errors of others, the user's mistakes and those of ranks on the host stay as they are") {
  const TrainConfig config;
  const WorkerEnv place;
  for (const Errc code : {Errc::peer_lost, Errc::connection_lost, Errc::aborted, Errc::usage}) {
    CHECK(std::string(fault_of_rank(Error(code, "x"), config, place, device).what()) == "x");
    CHECK_FALSE(is_device_fault(Error(code, "x"), device));
  }
  CHECK(std::string(fault_of_rank(Error(Errc::io, "x"), config, place, Device{}).what()) == "x");
  CHECK(is_device_fault(Error(Errc::io, "x"), device));
}
