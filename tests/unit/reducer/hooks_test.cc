#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "common/error.h"
#include "common/float16.h"
#include "worker/reducer/built_in_hooks.h"
#include "worker/reducer/reducer.h"
#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"

using namespace ddprun;
using ddprun::testing::run_ranks;

namespace {

using Values = std::vector<float>;

// The model has a bucket of small parameters, one of a matrix with room for compression, and a third one.
const std::vector<ParameterRef> model = {
    {"bias", {37}}, {"weight", {40, 50}}, {"small", {3, 2}}, {"kernel", {16, 3, 5, 5}}, {"scalar", {}}};
constexpr BucketLimits limits{.first_bytes = 64, .bytes = 8192};

// Returns a number in [-1, 1), different for each rank, pass and parameter.
float number(int rank, int pass, std::size_t parameter, std::size_t i) {
  auto bits = static_cast<std::uint32_t>(((rank * 31 + pass) * 17 + static_cast<int>(parameter)) * 7919) +
              static_cast<std::uint32_t>(i) * 2654435761u;
  bits = (bits ^ (bits >> 15)) * 0x2c1b3c6du;
  bits = (bits ^ (bits >> 12)) * 0x297a2d39u;
  return static_cast<float>(static_cast<std::int32_t>(bits ^ (bits >> 15))) * 0x1p-31f;
}

using Gradient = std::function<float(int rank, int pass, std::size_t parameter, std::size_t i)>;

Values read(const Reducer& reducer) {
  Values all;
  for (std::size_t p = 0; p < model.size(); ++p) {
    const auto memory = reducer.gradient_memory(p);
    const auto* values = static_cast<const float*>(memory.get());
    all.insert(all.end(), values, values + model[p].count());
  }
  return all;
}

Values pass(Reducer& reducer, int rank, int number_of_pass, const Gradient& gradient) {
  for (std::size_t p = model.size(); p-- > 0;) {
    const auto memory = reducer.gradient_memory(p);
    auto* values = static_cast<float*>(memory.get());
    for (std::size_t i = 0; i < model[p].count(); ++i) values[i] = gradient(rank, number_of_pass, p, i);
    reducer.mark_ready(p);
  }
  reducer.finalize();
  return read(reducer);
}

Values average(int ranks, int number_of_pass, const Gradient& gradient) {
  Values all;
  for (std::size_t p = 0; p < model.size(); ++p) {
    for (std::size_t i = 0; i < model[p].count(); ++i) {
      double sum = 0;
      for (int r = 0; r < ranks; ++r) sum += gradient(r, number_of_pass, p, i);
      all.push_back(static_cast<float>(sum / ranks));
    }
  }
  return all;
}

bool same_bits(const Values& a, const Values& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double largest_difference(const Values& a, const Values& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

double mean_difference(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
  return sum / static_cast<double>(a.size());
}

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// Returns the result of each pass, the same at every rank.
std::vector<Values> results(const std::string& chain, int ranks, int passes, const Gradient& gradient,
                            const HookOptions& options = {}) {
  std::vector<std::vector<Values>> all(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](ProcessGroup& group) {
    Reducer reducer(group, model, {.limits = limits});
    reducer.set_hook(make_hook(chain, group, options));
    for (int n = 0; n < passes; ++n)
      all[static_cast<std::size_t>(group.rank())].push_back(pass(reducer, group.rank(), n, gradient));
  });
  for (const auto& one : all)
    for (std::size_t n = 0; n < one.size(); ++n) REQUIRE(same_bits(one[n], all[0][n]));
  return all[0];
}

constexpr HookOptions from_the_start{.power_sgd = {.matrix_approximation_rank = 2, .start_powerSGD_iter = 0},
                                     .one_bit = {.freeze_step = 1}};

// Returns the range of a parameter in the result of read().
std::pair<std::size_t, std::size_t> range_of(std::size_t parameter) {
  std::size_t begin = 0;
  for (std::size_t p = 0; p < parameter; ++p) begin += model[p].count();
  return {begin, begin + model[parameter].count()};
}

Values part_of(const Values& all, std::size_t parameter) {
  const auto [begin, end] = range_of(parameter);
  return {all.begin() + static_cast<std::ptrdiff_t>(begin), all.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace

TEST_CASE("every hook that rounds gives the average within its precision, the same bits at every rank") {
  // For numbers below 1: a unit in the last place, since their sum is rounded too; PowerSGD before its first pass.
  const std::map<std::string, double> tolerances{{"allreduce", 1e-7},
                                                 {"fp16", 0x1p-10},
                                                 {"bf16", 0x1p-7},
                                                 {"int8", 1.01 / 127},
                                                 {"int8_channel", 1.01 / 127},
                                                 {"int4", 3.2 / 7},  // two errors of half a unit, twice
                                                 {"topk", 1e-6},     // the error over all elements
                                                 {"onebit", 1e-7},   // before it compresses, as with PowerSGD
                                                 {"powersgd", 1e-7},
                                                 {"batched_powersgd", 1e-7},
                                                 {"fp16+int8", 1.01 / 127 + 0x1p-10},
                                                 {"bf16+int8_channel", 1.01 / 127 + 0x1p-7},
                                                 {"fp16+bf16", 0x1p-7},
                                                 {"powersgd+int8", 1.01 / 127},
                                                 {"batched_powersgd+fp16", 0x1p-10},
                                                 {"fp16+powersgd", 0x1p-10}};
  for (const auto& name : hook_names()) CHECK(tolerances.contains(name));
  for (const auto& [chain, tolerance] : tolerances) {
    for (const int ranks : {1, 2, 3}) {
      INFO(chain << " with " << ranks << " ranks");
      const auto found = results(chain, ranks, 2, number, {.topk_fraction = 1});
      for (int n = 0; n < 2; ++n)
        CHECK(largest_difference(found[static_cast<std::size_t>(n)], average(ranks, n, number)) <= tolerance);
    }
  }
}

TEST_CASE("fp16 and bf16 average rounded gradients") {
  const auto check = [](const std::string& chain, const auto& rounded) {
    const auto found = results(chain, 2, 1, number)[0];
    const auto expected =
        average(2, 0, [&](int rank, int n, std::size_t p, std::size_t i) { return rounded(number(rank, n, p, i)); });
    for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == rounded(expected[i]));
  };
  check("fp16", [](float value) { return static_cast<float>(Float16(value)); });
  check("bf16", [](float value) { return static_cast<float>(BFloat16(value)); });
}

TEST_CASE("a scale for each channel keeps small channels beside large ones") {
  // Row 0 of the weight is a million times larger than the others.
  const Gradient gradient = [](int rank, int n, std::size_t p, std::size_t i) {
    return number(rank, n, p, i) * (p == 1 && i < 50 ? 1e6f : 1.0f);
  };
  const auto expected = part_of(average(3, 0, gradient), 1);
  const auto small = [&](const std::string& chain) {
    auto found = part_of(results(chain, 3, 1, gradient)[0], 1);
    double largest = 0;
    for (std::size_t i = 50; i < found.size(); ++i)
      largest = std::max(largest, static_cast<double>(std::abs(found[i] - expected[i])));
    return largest;
  };
  CHECK(small("int8_channel") <= 1.01 / 127);
  CHECK(small("int8") > 0.5);  // values in the same part are rounded to zero
}

TEST_CASE("a gradient that is not finite at one rank is so at all, whatever compresses it") {
  for (const char* chain : {"fp16", "bf16", "int8", "int8_channel", "int4", "topk", "onebit", "powersgd",
                            "batched_powersgd", "powersgd+int8"}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      INFO(chain << " " << bad);
      const auto [begin, end] = range_of(1);
      const auto found = results(
          chain, 2, 2,
          [&](int rank, int n, std::size_t p, std::size_t i) {
            return rank == 1 && n == 0 && p == 1 && i == 77 ? bad : number(rank, n, p, i);
          },
          from_the_start);
      CHECK_FALSE(std::isfinite(found[0][begin + 77]));
      for (const auto value : found[1]) REQUIRE(std::isfinite(value));  // the next pass is not affected
    }
  }
}

TEST_CASE("a pass with more elements that are not finite than topk sends leaves nothing to the next") {
  const auto found = results("topk", 2, 2, [](int rank, int n, std::size_t p, std::size_t i) {
    return rank == 1 && n == 0 ? std::numeric_limits<float>::quiet_NaN() : number(rank, n, p, i);
  });
  CHECK(std::ranges::any_of(found[0], [](float value) { return std::isnan(value); }));
  CHECK(std::ranges::all_of(found[1], [](float value) { return std::isfinite(value); }));
}

TEST_CASE("PowerSGD is exact for matrices of its rank, and for what it does not compress") {
  // The weight is two outer products, with the same row space at every rank; the kernel, as 16 x 75, is one.
  const Gradient gradient = [](int rank, int n, std::size_t p, std::size_t i) {
    const auto factor = static_cast<float>(rank + n + 1);
    const std::size_t columns = p == 1 ? 50 : 75;
    if (p != 1 && p != 3) return number(rank, n, p, i);
    const auto row = i / columns, column = i % columns;
    const float one = number(0, 0, 90, row) * number(0, 0, 91, column);
    return factor * one + (p == 1 ? number(rank, n, 92, row) * number(0, 0, 93, column) : 0);
  };
  for (const int ranks : {1, 2, 3}) {
    const auto found = results("powersgd", ranks, 3, gradient, from_the_start);
    for (int n = 0; n < 3; ++n)
      CHECK(largest_difference(found[static_cast<std::size_t>(n)], average(ranks, n, gradient)) < 2e-5);
  }
}

TEST_CASE("PowerSGD compresses from its first pass on") {
  auto options = from_the_start;
  options.power_sgd.start_powerSGD_iter = 2;
  const auto found = results("powersgd", 2, 3, number, options);
  CHECK(largest_difference(found[1], average(2, 1, number)) < 1e-6);
  CHECK(largest_difference(part_of(found[2], 1), part_of(average(2, 2, number), 1)) > 0.1);
  CHECK(largest_difference(part_of(found[2], 0), part_of(average(2, 2, number), 0)) < 1e-6);
}

TEST_CASE("a matrix whose factors are not much smaller is sent as it is") {
  auto options = from_the_start;
  options.power_sgd.use_error_feedback = false;
  options.power_sgd.min_compression_rate = 11;  // 40 x 50 in rank 2: 11.1 times smaller
  CHECK(largest_difference(part_of(results("powersgd", 2, 1, number, options)[0], 1),
                           part_of(average(2, 0, number), 1)) > 0.1);
  options.power_sgd.min_compression_rate = 12;
  CHECK(largest_difference(results("powersgd", 2, 1, number, options)[0], average(2, 0, number)) < 1e-6);
}

TEST_CASE("with error feedback the results add up to the gradients, without it they do not") {
  const Gradient constant = [](int rank, int, std::size_t p, std::size_t i) { return number(rank, 0, p, i); };
  constexpr int passes = 200;
  const auto mean_error = [&](const char* chain, bool feedback) {
    auto options = from_the_start;
    options.power_sgd.use_error_feedback = feedback;
    const auto found = results(chain, 2, passes, constant, options);
    Values mean(found[0].size());
    for (const auto& each : found)
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += each[i] / passes;
    return largest_difference(mean, average(2, 0, constant));
  };
  for (const char* chain : {"powersgd", "batched_powersgd"}) {
    INFO(chain);
    CHECK(mean_error(chain, true) < 0.3);
    CHECK(mean_error(chain, false) > 0.6);
  }
}

TEST_CASE("what rounding and sparsity leave out is sent later") {
  const Gradient constant = [](int rank, int, std::size_t p, std::size_t i) { return number(rank, 0, p, i); };
  constexpr int passes = 400;
  for (const auto& [chain, tolerance] : {std::pair("int4", 0.01), std::pair("topk", 0.1)})
    for (const int ranks : {1, 2, 3}) {
      INFO(chain << " with " << ranks << " ranks");
      const auto found = results(chain, ranks, passes, constant, {.topk_fraction = 0.1});
      Values mean(found[0].size());
      for (const auto& each : found)
        for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += each[i] / passes;
      const auto expected = average(ranks, 0, constant);
      CHECK(largest_difference(found[0], expected) > 0.05);
      CHECK(largest_difference(mean, expected) < tolerance);
    }
}

TEST_CASE("four bits have a scale for each block of a bucket") {
  const Gradient gradient = [](int rank, int n, std::size_t p, std::size_t i) {
    return number(rank, n, p, i) * (p == 1 && i < 128 ? 1e6f : 1.0f);
  };
  const auto expected = part_of(average(2, 0, gradient), 1), found = part_of(results("int4", 2, 1, gradient)[0], 1);
  double largest = 0;
  for (std::size_t i = 256; i < found.size(); ++i)  // whatever the block's place among the parameters
    largest = std::max(largest, static_cast<double>(std::abs(found[i] - expected[i])));
  CHECK(largest < 1.1 / 7);
}

TEST_CASE("topk sends the elements of largest magnitude, of equal ones the first") {
  const Gradient one_or_two = [](int, int, std::size_t p, std::size_t i) {
    return p == 1 ? (i % 100 == 7 ? -2.0f : 1.0f) : 0.0f;
  };
  const auto found = part_of(results("topk", 2, 1, one_or_two, {.topk_fraction = 0.02})[0], 1);
  std::size_t twos = 0, ones = 0, ones_behind_zeros = 0;
  bool saw_zero = false;
  for (const float value : found) {
    twos += value == -2;
    ones += value == 1;
    ones_behind_zeros += saw_zero && value == 1;
    saw_zero = saw_zero || value == 0;
  }
  CHECK(twos == 20);
  CHECK((ones >= 20 && ones < 100));  // 40 of 2,000 elements are sent, and more where the bucket has others
  CHECK(ones_behind_zeros == 0);
}

TEST_CASE("an element that one rank sends is divided by all ranks") {
  const Gradient at_one = [](int rank, int, std::size_t p, std::size_t i) {
    return p == 1 && i == static_cast<std::size_t>(rank) ? 6.0f : 0.0f;
  };
  const auto found = part_of(results("topk", 3, 1, at_one)[0], 1);
  for (std::size_t i = 0; i < 5; ++i) CHECK(found[i] == (i < 3 ? 2.0f : 0.0f));
}

// The remainder of one bit is sent later, so the mean of the momentum over many passes is that of the gradients.
TEST_CASE("an Adam's momentum follows that of the average gradients through single bits") {
  const Gradient constant = [](int rank, int, std::size_t p, std::size_t i) { return number(rank, 0, p, i); };
  const Gradient noisy = [&](int rank, int n, std::size_t p, std::size_t i) {
    return constant(rank, n, p, i) + 0.5f * number(rank, n + 1, p, i);
  };
  constexpr int first = 50, passes = 1000;
  for (const int ranks : {1, 2, 3}) {
    INFO(ranks << " ranks");
    const auto found = results("onebit", ranks, first + passes, noisy, {.one_bit = {.freeze_step = first}});
    CHECK(largest_difference(found[first - 1], average(ranks, first - 1, noisy)) < 1e-6);
    const auto expected = average(ranks, 0, constant);
    Values momentum(expected.size()), mean(expected.size());
    for (int n = 0; n < first + passes; ++n)
      for (std::size_t i = 0; i < mean.size(); ++i) {
        momentum[i] = 0.9f * momentum[i] + 0.1f * found[static_cast<std::size_t>(n)][i];
        if (n >= first) mean[i] += momentum[i] / passes;
      }
    CHECK(mean_difference(momentum, expected) > 0.1);
    CHECK(mean_difference(mean, expected) < 0.02);
  }
}

// After one pass the root of the second average is a multiple of that pass's gradient.
TEST_CASE("of each block of a bucket the steps of an Adam have one magnitude") {
  const auto found = results("onebit", 2, 2, number, {.one_bit = {.freeze_step = 1}});
  const auto first = part_of(found[0], 1), second = part_of(found[1], 1);
  std::set<long> magnitudes;  // in thousandths
  for (std::size_t i = 0; i < first.size(); ++i)
    magnitudes.insert(std::lround(1e3f * std::abs(0.9f + second[i] / first[i])));
  CHECK((magnitudes.size() > 1 && magnitudes.size() <= 2000 / 256 + 4));  // parts of two ranks, neighbouring parameters
}

// The gradients grow by ten thousand: Adam's steps are those of gradients that stay as they were.
TEST_CASE("gradients that outgrow the second average do not make an Adam's steps larger") {
  const Gradient growing = [](int, int n, std::size_t p, std::size_t i) {
    return (p == 1 && n >= 3 ? 1e4f : 1.0f) * number(0, 0, p, i);
  };
  const auto found = results("onebit", 2, 40, growing, {.one_bit = {.freeze_step = 3}});
  const auto small = part_of(average(2, 0, growing), 1);
  Values momentum(small.size());
  for (const auto& each : found) {
    const auto gradients = part_of(each, 1);
    for (std::size_t i = 0; i < momentum.size(); ++i) {
      momentum[i] = 0.9f * momentum[i] + 0.1f * gradients[i];
      REQUIRE(std::abs(momentum[i]) < 1.1f * std::abs(small[i]));
    }
  }
}

TEST_CASE("an element without a gradient before one bit is sent gets none") {
  const Gradient later = [](int rank, int n, std::size_t p, std::size_t i) {
    return p == 1 && i % 2 == 0 && n < 2 ? 0.0f : number(rank, n, p, i);
  };
  const auto found = part_of(results("onebit", 2, 6, later, {.one_bit = {.freeze_step = 2}})[5], 1);
  for (std::size_t i = 0; i < found.size(); ++i) REQUIRE((found[i] == 0) == (i % 2 == 0));
}

TEST_CASE("a matrix that was zero is learnt once it is not") {
  const Gradient later = [](int rank, int n, std::size_t p, std::size_t i) {
    return n == 0 ? 0.0f : number(0, 0, 90 + p, i / 50) * number(0, 0, 91, i % 50) * static_cast<float>(rank + 1);
  };
  const auto found = results("powersgd", 2, 3, later, from_the_start);
  CHECK(largest_difference(part_of(found[0], 1), part_of(average(2, 0, later), 1)) == 0);
  CHECK(largest_difference(part_of(found[2], 1), part_of(average(2, 2, later), 1)) < 1e-5);
}

TEST_CASE("a hook goes on from its state with the bits of one that was never stopped") {
  for (const char* chain :
       {"int4", "topk", "bf16+topk", "onebit", "powersgd", "batched_powersgd", "powersgd+int8", "fp16+powersgd"}) {
    INFO(chain);
    auto options = from_the_start;
    options.power_sgd.start_powerSGD_iter = 1;
    const auto undisturbed = results(chain, 2, 6, number, options);
    run_ranks(2, [&](ProcessGroup& group) {
      std::map<std::string, std::vector<std::byte>> saved;
      const auto run = [&](int from, int to, bool restore) {
        Reducer reducer(group, model, {.limits = limits});
        reducer.set_hook(make_hook(chain, group, options));
        if (restore)
          for (const auto& [name, span] : reducer.hook().state())
            std::memcpy(span.data, saved.at(name).data(), span.bytes());
        Values last;
        for (int n = from; n < to; ++n) last = pass(reducer, group.rank(), n, number);
        for (const auto& [name, span] : reducer.hook().state()) {
          const auto* data = static_cast<const std::byte*>(span.data);
          saved[name].assign(data, data + span.bytes());
        }
        return last;
      };
      run(0, 3, false);
      require(same_bits(run(3, 6, true), undisturbed[5]), "the same bits");
      require(!same_bits(run(3, 6, false), undisturbed[5]), "the state matters");
    });
  }
}

TEST_CASE("a chain of hooks that makes no sense is refused") {
  const auto message = [](const std::string& chain) {
    try {
      check_hook(chain);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  CHECK(message("fp16+powersgd") == "no error");
  CHECK(message("zip") ==
        "there is no hook zip; expected one of allreduce, fp16, bf16, int8, int8_channel, int4, topk, "
        "onebit, powersgd, batched_powersgd, or several joined by +");
  CHECK(message("").starts_with("there is no hook ;"));
  CHECK(message("fp16+").starts_with("there is no hook ;"));
  CHECK(message("topk+int4") == "topk averages by itself, so it has to be the last");
  CHECK(message("int8+fp16") == "int8 averages by itself, so it has to be the last");
  CHECK(message("fp16+fp16") == "fp16 is given twice");
  CHECK(message("powersgd+batched_powersgd") == "powersgd and batched_powersgd exclude each other");
}
