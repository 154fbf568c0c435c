#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

// The names of folders and files of checkpoints: see FORMAT.md.
namespace ddprun::checkpoint {

inline constexpr const char* model_file = "model.safetensors";
inline constexpr const char* optimizer_file = "optimizer.safetensors";
inline constexpr const char* ema_file = "ema.safetensors";
inline constexpr const char* hook_file = "hook.safetensors";
inline constexpr const char* state_file = "state.json";
inline constexpr const char* placements_file = "placements.json";
// Returns the name of a rank's part.
std::string part_file(int rank);
bool is_part_file(std::string_view name);

// Tensors in a part have a name of the whole model or optimizer behind one of these.
inline constexpr std::string_view model_prefix = "model/";
inline constexpr std::string_view optimizer_prefix = "optimizer/";
inline constexpr std::string_view ema_prefix = "ema/";

// The name of the folder of a step's checkpoint, and of the best one's.
std::string step_name(std::int64_t step);
inline constexpr const char* best_name = "best";
// Returns none for the folder of another name.
std::optional<std::int64_t> step_of(const std::filesystem::path& folder);

}  // namespace ddprun::checkpoint
