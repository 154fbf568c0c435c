#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/reducer/comm_hook.h"
#include "worker/reducer/one_bit_options.h"
#include "worker/reducer/power_sgd_options.h"

namespace ddprun {

// The built-in communication hooks by name:
//   allreduce          the average in the type of the gradients
//   fp16, bf16         rounded to 16 bits
//   int8, int8_channel 8 bits, with a scale for each rank's part of a bucket, or for each channel
//   int4               4 bits, with a scale for each 128 elements, and error feedback
//   topk               a fraction of the elements, those of largest magnitude, and error feedback
//   onebit             the signs of Adam's momentum, with a scale for each 256 elements, and error feedback
//   powersgd, batched_powersgd   matrices of low rank
// A chain "a+b" wraps one in another: a compresses, and b averages what a sends. "powersgd+fp16" sends PowerSGD's
// factors in 16 bits; "fp16+powersgd" rounds the gradients first, like PyTorch's fp16_compress_wrapper of
// powerSGD_hook. A hook that averages by itself (allreduce, int8, int4, topk, onebit) is last.
std::vector<std::string> hook_names();

// Throws Errc::usage saying what is wrong with a chain: completes "parallel.hook = name: ".
void check_hook(std::string_view chain);
bool has_hook(std::string_view chain, std::string_view name);
// Returns whether the chain only rounds to 16 bits what another operation averages.
bool only_casts(std::string_view chain);
// Returns whether the chain rounds a bucket as a whole: what becomes of an element depends on its neighbours.
bool rounds_buckets(std::string_view chain);

struct HookOptions {
  PowerSgdOptions power_sgd;
  double topk_fraction = 0.01;  // the share of a bucket's elements that topk sends
  OneBitOptions one_bit;
  // Averages only this rank's part of a bucket (reducer/shards.h), if the chain is of casts: others average all of it.
  bool own_part = false;
};

// Makes a hook, which the reducer that gets it prepares. Throws what check_hook() throws.
std::unique_ptr<CommHook> make_hook(std::string_view chain, ProcessGroup& group, const HookOptions& options = {});

}  // namespace ddprun
