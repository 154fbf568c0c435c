#pragma once

#include <set>
#include <string>
#include <vector>

#include "worker/autograd/function.h"

// How values lie over the ranks of a mesh, and a check that the operands of an operation lie alike: the rule of
// "varying manual axes" in JAX's shard_map (check_vma). Over an axis a value is either replicated: ranks that differ
// only there have the same value, with the same gradient; or local: each rank has a shard, a partial sum, or a partial
// gradient of its own. Collectives lead from one to the other. An operation with operands of both lacks a collective:
// the shapes may fit, and the result or a gradient is wrong.
//
// Threads: those of the values; a scope is its thread's.
namespace ddprun::autograd {

// The axes over which a value is local. It is replicated over the others.
using LocalAxes = std::set<std::string>;

// Declares how a parameter, or another value that no operation has made, lies; name: for errors. A value of which
// nothing is declared, such as a mask, goes with all others. Results lie as the operands do.
void declare_placement(const Variable& value, std::string name, LocalAxes local_over);

// While one exists on a thread, an operation there whose operands lie differently throws Errc::mismatch, naming it, its
// module and both operands.
class PlacementCheckScope {
 public:
  PlacementCheckScope();
  ~PlacementCheckScope();
  PlacementCheckScope(const PlacementCheckScope&) = delete;
  PlacementCheckScope& operator=(const PlacementCheckScope&) = delete;

 private:
  bool before_;
};

// Returns whether builds of this type check always: those of type Debug.
bool always_checks_placements();

// A collective over an axis takes a value of one kind, and makes one of the same or the other kind.
struct PlacementChange {
  bool from_local = false;
  bool to_local = false;
};
// Checks that the operand of a collective is what it expects, and declares its result. Returns the result. Throws
// Errc::mismatch within a PlacementCheckScope; does nothing outside.
Variable placed(const Function& collective, const Variable& operand, const std::string& axis, PlacementChange change,
                Variable result);

// Declares that a value lies as another one, whose history it does not have.
void place_like(const Variable& other, const Variable& value);

// These are called by every operation.
void check_placements(const char* operation, const std::vector<Variable>& operands);
void place_result(const char* operation, const std::vector<Variable>& operands, const Variable& result);

}  // namespace ddprun::autograd
