#include "worker/trainer/config/resume.h"

#include <array>
#include <utility>

#include "common/error.h"

namespace ddprun::trainer {
namespace {

constexpr std::array<std::pair<std::string_view, Resume>, 4> resume_choices{
    {{"auto", Resume::automatic}, {"never", Resume::never}, {"require", Resume::require}, {"best", Resume::best}}};

}  // namespace

Resume resume_from_name(std::string_view name) {
  for (const auto& [text, resume] : resume_choices)
    if (text == name) return resume;
  throw make_error(Errc::internal, "checkpoint.resume is {}", name);
}

std::vector<std::string> resume_names() {
  std::vector<std::string> names;
  for (const auto& choice : resume_choices) names.emplace_back(choice.first);
  return names;
}

}  // namespace ddprun::trainer
