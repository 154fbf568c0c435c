#include "worker/optim/offload.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/error.h"
#include "worker/autograd/ops.h"
#include "worker/optim/optimizer.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

// Returns "RssAnon: 1234 kB" of this process: memory that no file backs.
std::int64_t anonymous_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("RssAnon:", 0) == 0) return std::stoll(line.substr(8));
  throw std::runtime_error("no RssAnon");
}

// Returns the line of /proc/self/maps that has the address.
std::string mapping_of(const void* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream text(line);
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    text >> std::hex >> begin >> dash >> end;
    const auto place = reinterpret_cast<std::uintptr_t>(address);
    if (begin <= place && place < end) return line;
  }
  return {};
}

struct Trained {
  explicit Trained(std::int64_t elements, const std::filesystem::path& offload = {})
      : parameter(Tensor::full({elements}, 0.5), true),
        optimizer(
            optim::make_optimizer("adam", {.lr = 0.1, .offload = offload}, optim::NamedParameters{{"p", parameter}})) {}
  void step() {
    optimizer->zero_grad();
    sum(mul(parameter, parameter)).backward();
    optimizer->step();
  }
  Variable parameter;
  std::unique_ptr<optim::Optimizer> optimizer;
};

}  // namespace

TEST_CASE("an optimizer whose state is in files learns the same, and leaves no name in the folder") {
  TempDir folder;
  Trained whole(1000), offloaded(1000, folder.path());
  for (int i = 0; i < 5; ++i) {
    whole.step();
    offloaded.step();
  }
  for (std::int64_t i = 0; i < 1000; ++i)
    REQUIRE(offloaded.parameter.value().data<float>()[i] == whole.parameter.value().data<float>()[i]);
  REQUIRE(offloaded.optimizer->state().size() == 2);
  for (const auto& [name, tensor] : offloaded.optimizer->state()) {
    INFO(name);
    CHECK_THAT(mapping_of(tensor.raw()), Catch::Contains(folder.path().string()) && Catch::Contains("(deleted)"));
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("a state in files takes no memory that only the process has, and is freed with the optimizer") {
  constexpr std::int64_t elements = 4 << 20;  // 16 MiB for each of two tensors of state
  TempDir folder;
  const void* state = nullptr;
  {
    Trained offloaded(elements, folder.path());
    const auto before = anonymous_kib();
    for (const auto& [name, tensor] : offloaded.optimizer->state()) {
      Tensor values = tensor;
      values.fill(1);
    }
    CHECK(anonymous_kib() - before < 4 << 10);
    state = offloaded.optimizer->state()[0].second.raw();
  }
  CHECK_THAT(mapping_of(state), !Catch::Contains("(deleted)"));
  const auto before = anonymous_kib();
  const Trained whole(elements);
  CHECK(anonymous_kib() - before > 24 << 10);  // the value to compare with
}

TEST_CASE("a folder that is not there, and a state that does not fit, are errors that name the folder") {
  TempDir folder;
  const auto refusal = [](const Shape& shape, const std::filesystem::path& place) {
    try {
      optim::zeros_in_file(shape, DType::float32, place);
    } catch (const Error& e) {
      return std::pair(e.code(), std::string(e.what()));
    }
    return std::pair(Errc::aborted, std::string("accepted"));
  };
  const auto missing = refusal({4}, folder / "missing");
  CHECK(missing.first == Errc::usage);
  CHECK_THAT(missing.second, Catch::Contains((folder / "missing").string()));
  const auto too_large = refusal({std::int64_t{1} << 50}, folder.path());
  CHECK(too_large.first == Errc::io);
  CHECK_THAT(too_large.second, Catch::Contains("cannot reserve 4503599627370496 bytes in " + folder.path().string()));
  CHECK(optim::zeros_in_file({0}, DType::float32, folder.path()).numel() == 0);
}
