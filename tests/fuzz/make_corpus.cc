// make_corpus FOLDER: writes the seeds of each fuzz target to FOLDER/<target>/: valid requests, single and in
// conversations.
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/rendezvous/membership/session_protocol.h"
#include "tests/support/store_junk.h"

namespace {

void write_seed(const std::filesystem::path& folder, int number, const std::string& bytes) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / std::to_string(number), std::ios::binary) << bytes;
}

// Frames of a job of two nodes, singly and as session_fuzz reads a conversation: session, length, bytes.
void write_session_seeds(const std::filesystem::path& folder) {
  using namespace ddprun;
  const auto join = [](const char* id) {
    return encode(NodeFrame{SessionJoin{{.id = id}, {.min_nodes = 2, .max_nodes = 2}}});
  };
  const std::vector<std::pair<char, std::string>> frames = {
      {'\0', join("a")},
      {'\1', join("b")},
      {'\0', encode(NodeFrame{SessionBeat{}})},
      {'\0', encode(NodeFrame{SessionReady{0, 4000}})},
      {'\1', encode(NodeFrame{SessionReady{0, 0}})},
      {'\0', encode(NodeFrame{SessionSuccess{0}})},
      {'\1', encode(NodeFrame{SessionFailure{0, 9, {{.rank = 1, .exit_code = 7}}}})},
      {'\1', encode(NodeFrame{SessionLeave{"SIGTERM"}})}};
  std::string conversation;
  int number = 0;
  for (const auto& [session, frame] : frames) {
    conversation += std::string{session, static_cast<char>(frame.size())} + frame;
    write_seed(folder, number++, frame);
    write_seed(folder, number++, conversation);
  }
}

// Small files for each reader of data_fuzz, which the first byte chooses.
void write_data_seeds(const std::filesystem::path& folder) {
  using namespace std::string_literals;
  const std::string record = "\x07"s + std::string(3072, '\x40');
  write_seed(folder, 0, "\0"s + record);
  write_seed(folder, 1, "\0"s + record + record);
  write_seed(folder, 2, "\1\0\0\x08\1\0\0\0\3abc"s);
  write_seed(folder, 3, "\2\0\0\x08\3\0\0\0\2\0\0\0\1\0\0\0\2abcd"s);
  write_seed(folder, 4,
             "\3"
             "1,2\n-0.5e3 , 4\r\n"s);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path folder = argv[1];
  write_session_seeds(folder / "session_fuzz");
  write_data_seeds(folder / "data_fuzz");
  ddprun::testing::StoreJunk junk(1);
  for (int i = 0; i < 60; ++i) {
    std::string stream = "\x11", conversation;
    for (int m = 0; m <= i / 4; ++m) {
      const auto bytes = junk.request();
      stream += bytes;
      // As store_state_fuzz reads it: sender, length, bytes.
      if (bytes.size() < 256)
        conversation += std::string{static_cast<char>(junk.below(4)), static_cast<char>(bytes.size())} + bytes;
    }
    write_seed(folder / "codec_fuzz", i, stream);
    write_seed(folder / "store_state_fuzz", i, conversation);
  }
  return 0;
}
