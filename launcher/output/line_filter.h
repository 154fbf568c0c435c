#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ddprun/launcher/output/line_assembler.h"

namespace ddprun {

// Of one stream the lines that contain any of some texts, each with the prefix in front. The prefix itself is not
// searched.
class LineFilter {
 public:
  LineFilter(std::vector<std::string> texts, std::string prefix)
      : texts_(std::move(texts)), prefix_(std::move(prefix)), lines_("") {}

  // Appends to out what has become whole and is wanted.
  void feed(std::string_view bytes, std::string& out);
  // The stream has ended: its last line, if it lacks an end.
  void flush(std::string& out);

 private:
  void pick(std::string_view lines, std::string& out) const;

  std::vector<std::string> texts_;
  std::string prefix_;
  LineAssembler lines_;
};

}  // namespace ddprun
