#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

// Logical processors by the kernel's numbers, ascending, without duplicates.
using CpuList = std::vector<int>;

// Parses the kernel's format: "0-3,8", with or without a final newline; "" is the empty list. Returns nullopt for any
// other text and for numbers above 65535.
std::optional<CpuList> parse_cpu_list(std::string_view text);
std::string format_cpu_list(const CpuList& cpus);

bool contains(const CpuList& cpus, int cpu);
CpuList intersection(const CpuList& a, const CpuList& b);

}  // namespace ddprun
