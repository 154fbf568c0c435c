#include "worker/reducer/built_in_hooks.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/ranges.h>

#include "common/error.h"
#include "worker/reducer/hooks/allreduce_hook.h"
#include "worker/reducer/hooks/cast_hook.h"
#include "worker/reducer/hooks/integer_hook.h"
#include "worker/reducer/hooks/one_bit_hook.h"
#include "worker/reducer/hooks/power_sgd_hook.h"
#include "worker/reducer/hooks/reduce_scatter_hook.h"
#include "worker/reducer/hooks/top_k_hook.h"

namespace ddprun {
namespace {

using Inner = std::unique_ptr<CommHook>;

struct HookEntry {
  std::string_view name;
  bool averages;  // true if it averages by itself: it wraps no other
  Inner (*make)(ProcessGroup& group, const HookOptions& options, Inner inner);
};

constexpr std::array<HookEntry, 10> hooks{{
    {"allreduce", true, [](ProcessGroup& group, const HookOptions&, Inner) { return make_allreduce_hook(group); }},
    {"fp16", false,
     [](ProcessGroup& group, const HookOptions&, Inner inner) {
       return make_cast_hook(DType::float16, group, std::move(inner));
     }},
    {"bf16", false,
     [](ProcessGroup& group, const HookOptions&, Inner inner) {
       return make_cast_hook(DType::bfloat16, group, std::move(inner));
     }},
    {"int8", true,
     [](ProcessGroup& group, const HookOptions&, Inner) { return make_integer_hook(IntegerForm::bits8, group); }},
    {"int8_channel", true,
     [](ProcessGroup& group, const HookOptions&, Inner) {
       return make_integer_hook(IntegerForm::bits8_channel, group);
     }},
    {"int4", true,
     [](ProcessGroup& group, const HookOptions&, Inner) { return make_integer_hook(IntegerForm::bits4, group); }},
    {"topk", true,
     [](ProcessGroup& group, const HookOptions& options, Inner) {
       return make_top_k_hook(options.topk_fraction, group);
     }},
    {"onebit", true,
     [](ProcessGroup& group, const HookOptions& options, Inner) { return make_one_bit_hook(options.one_bit, group); }},
    {"powersgd", false,
     [](ProcessGroup& group, const HookOptions& options, Inner inner) {
       return make_power_sgd_hook(PowerSgdForm::matrices, options.power_sgd, group, std::move(inner));
     }},
    {"batched_powersgd", false,
     [](ProcessGroup& group, const HookOptions& options, Inner inner) {
       return make_power_sgd_hook(PowerSgdForm::batched, options.power_sgd, group, std::move(inner));
     }},
}};

const HookEntry& row_of(std::string_view name) {
  const auto* row = std::ranges::find(hooks, name, &HookEntry::name);
  if (row == hooks.end())
    throw make_error(Errc::usage, "there is no hook {}; expected one of {}, or several joined by +", name,
                     fmt::join(hook_names(), ", "));
  return *row;
}

std::vector<const HookEntry*> rows_of(std::string_view chain) {
  std::vector<const HookEntry*> rows;
  for (std::size_t at = 0; at <= chain.size();) {
    const auto end = std::min(chain.find('+', at), chain.size());
    rows.push_back(&row_of(chain.substr(at, end - at)));
    at = end + 1;
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i]->averages && i + 1 < rows.size())
      throw make_error(Errc::usage, "{} averages by itself, so it has to be the last", rows[i]->name);
    if (std::find(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(i), rows[i]) !=
        rows.begin() + static_cast<std::ptrdiff_t>(i))
      throw make_error(Errc::usage, "{} is given twice", rows[i]->name);
  }
  const auto low_rank = [](const HookEntry* row) { return row->name.ends_with("powersgd"); };
  if (std::ranges::count_if(rows, low_rank) > 1)
    throw Error(Errc::usage, "powersgd and batched_powersgd exclude each other");
  return rows;
}

}  // namespace

std::vector<std::string> hook_names() {
  std::vector<std::string> names;
  for (const auto& row : hooks) names.emplace_back(row.name);
  return names;
}

void check_hook(std::string_view chain) {
  rows_of(chain);
}

bool has_hook(std::string_view chain, std::string_view name) {
  return std::ranges::any_of(rows_of(chain), [name](const HookEntry* row) { return row->name == name; });
}

bool only_casts(std::string_view chain) {
  return std::ranges::all_of(rows_of(chain),
                             [](const HookEntry* row) { return row->name == "fp16" || row->name == "bf16"; });
}

bool rounds_buckets(std::string_view chain) {
  return chain != "allreduce" && !only_casts(chain);
}

std::unique_ptr<CommHook> make_hook(std::string_view chain, ProcessGroup& group, const HookOptions& options) {
  const auto rows = rows_of(chain);
  Inner hook;
  if (options.own_part && only_casts(chain))
    hook = make_reduce_scatter_hook(group);
  else if (!rows.back()->averages)
    hook = make_allreduce_hook(group);
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) hook = (*row)->make(group, options, std::move(hook));
  return hook;
}

}  // namespace ddprun
