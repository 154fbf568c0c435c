// make_corpus FOLDER: writes the seeds of each fuzz target to FOLDER/<target>/: sound requests, singly and in
// conversations.
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/store_junk.h"

namespace {

void write_seed(const std::filesystem::path& folder, int number, const std::string& bytes) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / std::to_string(number), std::ios::binary) << bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path folder = argv[1];
  ddprun::testing::StoreJunk junk(1);
  for (int i = 0; i < 60; ++i) {
    std::string stream = "\x11", conversation;
    for (int m = 0; m <= i / 4; ++m) {
      const auto bytes = junk.request();
      stream += bytes;
      // As store_state_fuzz reads it: who speaks, how many bytes, the bytes.
      if (bytes.size() < 256)
        conversation += std::string{static_cast<char>(junk.below(4)), static_cast<char>(bytes.size())} + bytes;
    }
    write_seed(folder / "codec_fuzz", i, stream);
    write_seed(folder / "store_state_fuzz", i, conversation);
  }
  return 0;
}
