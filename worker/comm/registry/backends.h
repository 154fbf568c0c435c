#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "worker/comm/group_options.h"
#include "worker/comm/process_group.h"

namespace ddprun::comm {

// A way to form a group, by name. A new back end is one row in backends.cc.
struct Backend {
  std::string_view name;
  bool (*available)();  // tells whether this build and this host have it
  std::unique_ptr<ProcessGroup> (*make)(const GroupOptions&);
};

std::span<const Backend> backends();

// Throws Errc::usage listing the valid names.
const Backend& find_backend(std::string_view name);

// name: that of a row, the same at all ranks. Throws Errc::usage listing the valid names or for invalid options,
// Errc::mismatch naming two ranks that ask for different groups, Errc::unsupported for a back end that this build or
// host lacks, and what the back end throws.
std::unique_ptr<ProcessGroup> make_group(std::string_view name, const GroupOptions& options);

}  // namespace ddprun::comm
