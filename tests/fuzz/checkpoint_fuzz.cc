// The readers of a checkpoint's files with arbitrary bytes: content that they accept is written and read again as it
// was, and content that they refuse gives an error that names the file.
#include "common/error.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/run_state.h"
#include "worker/checkpoint/safetensors.h"
#include "tests/fuzz/memory_file.h"

using namespace ddprun;
using namespace ddprun::fuzz;

namespace {

void read_tensors(std::span<const std::uint8_t> bytes) {
  const MemoryFile memory(bytes);
  const checkpoint::SafetensorsFile file(memory.path());
  for (const auto& info : file.tensors()) {
    require(file.find(info.name) != nullptr);
    require(info.bytes() <= bytes.size());
    std::vector<std::byte> content(info.bytes());
    file.read(info, content);
  }
}

void read_manifest(std::span<const std::uint8_t> bytes) {
  const auto manifest = checkpoint::manifest_from_json(text_of(bytes), "manifest");
  const auto again = checkpoint::manifest_from_json(to_json(manifest), "manifest");
  require(again.step == manifest.step && again.files.size() == manifest.files.size());
  for (const auto& [name, digest] : manifest.files) require(name.find('/') == std::string::npos);
}

void read_state(std::span<const std::uint8_t> bytes) {
  const auto state = checkpoint::run_state_from_json(text_of(bytes), "state");
  const auto again = checkpoint::run_state_from_json(to_json(state), "state");
  require(again.step == state.step && again.samples == state.samples && again.config == state.config);
}

}  // namespace

// The first byte selects the reader.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::span bytes(data + 1, size - 1);
  try {
    switch (data[0] % 3) {
      case 0:
        read_tensors(bytes);
        break;
      case 1:
        read_manifest(bytes);
        break;
      default:
        read_state(bytes);
    }
  } catch (const Error& e) {
    require(e.code() == Errc::io && std::string_view(e.what()).size() > 10);
  }
  return 0;
}
