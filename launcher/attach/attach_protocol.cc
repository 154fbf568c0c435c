#include "launcher/attach/attach_protocol.h"

#include "common/error.h"

namespace ddprun {
namespace {

constexpr std::size_t header_bytes = 5;
constexpr std::string_view frame_kinds = "oenfx";

}  // namespace

std::string encode_frame(AttachFrame::Kind kind, std::string_view content) {
  std::string frame;
  frame.reserve(header_bytes + content.size());
  frame += static_cast<char>(kind);
  for (int shift = 0; shift < 32; shift += 8) frame += static_cast<char>((content.size() >> shift) & 0xff);
  frame += content;
  return frame;
}

std::optional<AttachFrame> AttachFrames::next() {
  if (bytes_.empty()) return std::nullopt;
  if (frame_kinds.find(bytes_[0]) == std::string_view::npos)
    throw make_error(Errc::protocol, "this is not an agent's answer: byte {}", static_cast<unsigned char>(bytes_[0]));
  if (bytes_.size() < header_bytes) return std::nullopt;
  std::size_t size = 0;
  for (std::size_t i = 0; i < 4; ++i) size |= std::size_t{static_cast<unsigned char>(bytes_[1 + i])} << (8 * i);
  if (size > AttachFrame::max_content)
    throw make_error(Errc::protocol, "this is not an agent's answer: a frame of {} bytes", size);
  if (bytes_.size() < header_bytes + size) return std::nullopt;
  AttachFrame frame{static_cast<AttachFrame::Kind>(bytes_[0]), bytes_.substr(header_bytes, size)};
  bytes_.erase(0, header_bytes + size);
  return frame;
}

}  // namespace ddprun
