#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun {

// The messages that an agent sends on its control socket after the request "attach RANK": frames of one byte for the
// kind, four for the length of the content (least significant first), and the content.
struct AttachFrame {
  enum class Kind : char {
    out = 'o',      // standard output of the worker
    err = 'e',      // standard error
    notice = 'n',   // a text about what is not shown
    refused = 'f',  // the reason why the rank is not or no longer followed; the last frame
    end = 'x',      // the job has ended: its exit code, a decimal number; the last frame
  };
  static constexpr std::size_t max_content = std::size_t{1} << 20;

  Kind kind = Kind::out;
  std::string content;
};

// REQUIRES: content.size() <= AttachFrame::max_content
std::string encode_frame(AttachFrame::Kind kind, std::string_view content);

// Splits the received bytes into frames. A value; not thread-safe.
class AttachFrames {
 public:
  void feed(std::string_view bytes) { bytes_ += bytes; }
  // The next frame, if it is complete. Throws Errc::protocol for an unknown kind or a content that is too long.
  std::optional<AttachFrame> next();

 private:
  std::string bytes_;
};

}  // namespace ddprun
