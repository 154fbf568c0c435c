#include "worker/autograd/placement_check.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "worker/autograd/node.h"
#include "worker/autograd/operation_observer.h"

namespace ddprun::autograd {
namespace {

thread_local bool checks = false;

const ValuePlacement* placement_of(const Variable& value) {
  return value.defined() ? Access::node(value).placement.get() : nullptr;
}

std::string result_of(const char* operation) {
  return "the result of " + describe_operation(operation, current_scope());
}

// Returns an axis over which one of these is local, and the other replicated.
const std::string& differing_axis(const LocalAxes& one, const LocalAxes& other) {
  const auto& longer = one.size() > other.size() ? one : other;
  const auto& shorter = one.size() > other.size() ? other : one;
  return *std::ranges::find_if(longer, [&](const auto& axis) { return !shorter.contains(axis); });
}

std::string described(const ValuePlacement& placement, const std::string& axis) {
  return fmt::format("{} is {}", placement.name,
                     placement.local_over.contains(axis) ? "each rank's own" : "the same at all ranks");
}

}  // namespace

void declare_placement(const Variable& value, std::string name, LocalAxes local_over) {
  Access::node(value).placement =
      std::make_shared<const ValuePlacement>(ValuePlacement{std::move(name), std::move(local_over)});
}

PlacementCheckScope::PlacementCheckScope() : before_(std::exchange(checks, true)) {}
PlacementCheckScope::~PlacementCheckScope() {
  checks = before_;
}

bool always_checks_placements() {
#ifdef DDPRUN_DEBUG_BUILD
  return true;
#else
  return false;
#endif
}

Variable placed(const Function& collective, const Variable& operand, const std::string& axis, PlacementChange change,
                Variable result) {
  const ValuePlacement* const own = checks ? placement_of(operand) : nullptr;
  if (!own) return result;
  if (own->local_over.contains(axis) != change.from_local)
    throw make_error(Errc::mismatch, "{}: over the axis {} {}, but the collective is for a value that is {}",
                     describe_operation(collective.name(), current_scope()), axis, described(*own, axis),
                     change.from_local ? "each rank's own" : "the same at all ranks");
  LocalAxes axes = own->local_over;
  axes.erase(axis);
  if (change.to_local) axes.insert(axis);
  declare_placement(result, result_of(collective.name()), std::move(axes));
  return result;
}

void place_like(const Variable& other, const Variable& value) {
  if (checks) Access::node(value).placement = Access::node(other).placement;
}

void check_placements(const char* operation, const std::vector<Variable>& operands) {
  if (!checks) return;
  const ValuePlacement* first = nullptr;
  for (const Variable& operand : operands) {
    const ValuePlacement* const own = placement_of(operand);
    if (!first) first = own;
    if (!own || own->local_over == first->local_over) continue;
    const std::string& axis = differing_axis(first->local_over, own->local_over);
    throw make_error(Errc::mismatch, "{}: over the axis {} {}, and {}: a collective is missing",
                     describe_operation(operation, current_scope()), axis, described(*first, axis),
                     described(*own, axis));
  }
}

void place_result(const char* operation, const std::vector<Variable>& operands, const Variable& result) {
  if (!checks) return;
  for (const Variable& operand : operands)
    if (const ValuePlacement* const own = placement_of(operand))
      return declare_placement(result, result_of(operation), own->local_over);
}

}  // namespace ddprun::autograd
