#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

// checkpoint.resume: "auto" starts from the newest checkpoint that is whole, or from step 0 when there is none; "never"
// starts from step 0; "require" fails when there is no checkpoint; "best" starts from the one with the best evaluation,
// and fails when there is none. If there are checkpoints and none is whole, that is an error, except with "never".
enum class Resume { automatic, never, require, best };
Resume resume_from_name(std::string_view name);  // REQUIRES: one of resume_names()
std::vector<std::string> resume_names();

}  // namespace ddprun::trainer
