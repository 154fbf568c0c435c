// A data set whose samples take long to read at one rank.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "worker/plugin/plugin.h"

using namespace ddprun;

namespace {

bool at_rank(std::int64_t rank) {
  const char* own = std::getenv("RANK");
  return rank < 0 || (own && std::to_string(rank) == own);
}

class SlowNumbers : public data::Dataset {
 public:
  SlowNumbers(std::int64_t size, std::int64_t delay_us, std::int64_t rank)
      : size_(size), delay_(at_rank(rank) ? delay_us : 0) {
    layout_.input_shape = {16};
    layout_.target_shape = {1};
    layout_.target_dtype = DType::float32;
  }
  std::int64_t size() const override { return size_; }
  const data::SampleLayout& layout() const override { return layout_; }
  void read(std::int64_t, std::span<std::byte> input, std::span<std::byte> target) const override {
    std::this_thread::sleep_for(delay_);
    std::fill(input.begin(), input.end(), std::byte{0});
    std::fill(target.begin(), target.end(), std::byte{0});
  }

 private:
  const std::int64_t size_;
  const std::chrono::microseconds delay_;
  data::SampleLayout layout_;
};

}  // namespace

extern "C" void ddprun_register(plugin::Registry& registry) {
  const auto delay = registry.setting<std::int64_t>("slow.read_us", 0, {.help = "delay of a sample", .min = 0});
  const auto rank = registry.setting<std::int64_t>("slow.rank", 0, {.help = "rank with the delay; -1: all", .min = -1});
  registry.datasets.add("slow_numbers", [=](const plugin::DatasetOptions& options) {
    return std::make_unique<SlowNumbers>(options.samples, options.split == data::Split::train ? *delay : 0, *rank);
  });
}
