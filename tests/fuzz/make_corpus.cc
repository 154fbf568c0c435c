// make_corpus FOLDER: writes the seeds of each fuzz target to FOLDER/<target>/: valid requests, single and in
// conversations.
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/membership/session_protocol.h"
#include "rendezvous/trust/client_handshake.h"
#include "rendezvous/trust/owner_question.h"
#include "rendezvous/trust/server_handshake.h"
#include "tests/support/store_junk.h"

namespace {

void write_seed(const std::filesystem::path& folder, int number, const std::string& bytes) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / std::to_string(number), std::ios::binary) << bytes;
}

// Writes frames of a job of two nodes, singly and as session_fuzz reads a conversation: session, length, bytes.
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
      {'\0', encode(NodeFrame{FollowRank{.number = 1, .rank = 1}})},
      {'\1', encode(NodeFrame{RankOutput{.number = 1, .content = "line\n"}})},
      {'\0', encode(NodeFrame{OutputTaken{.number = 1, .bytes = 37}})},
      {'\0', encode(NodeFrame{SignalRank{.number = 2, .rank = 1, .signal = {10, "root"}}})},
      {'\1', encode(NodeFrame{SignalAnswer{.number = 2, .problem = "no"}})},
      {'\0', encode(NodeFrame{UnfollowRank{1}})},
      {'\0', encode(NodeFrame{SessionSuccess{0}})},
      {'\1', encode(NodeFrame{SessionFailure{0, 9, Survivors::run, {{.rank = 1, .exit_code = 7}}}})},
      {'\0', encode(NodeFrame{SessionRecovery{.refusal = "no"}})},
      {'\0', encode(NodeFrame{LeaveRequest{"--chaos"}})},
      {'\0', encode(NodeFrame{WorkersRecoverable{.generation = 0, .able = true}})},
      {'\1', encode(NodeFrame{SessionLeave{"SIGTERM"}})}};
  std::string conversation;
  int number = 0;
  for (const auto& [session, frame] : frames) {
    conversation += std::string{session, static_cast<char>(frame.size())} + frame;
    write_seed(folder, number++, frame);
    write_seed(folder, number++, conversation);
  }
}

// Writes clients' first bytes, and a server's answer to a challenge; the first byte selects how they are split.
void write_handshake_seeds(const std::filesystem::path& folder) {
  using namespace ddprun;
  const std::string split(1, '\0');
  int number = 0;
  for (const auto transport : {Credentials::Transport::tls, Credentials::Transport::clear}) {
    Secret::Bytes bytes;
    bytes.fill(7);  // the token of handshake_fuzz
    const Credentials credentials(Secret(bytes), "job", transport);
    ClientHandshake client(credentials);
    SeenHellos seen;
    ServerHandshake server(&credentials, seen);
    const auto hello = client.take_output();
    server.feed(hello);
    const auto answer = server.take_output();
    client.feed(answer);
    for (const auto& message : {hello, answer, hello + client.take_output()})
      write_seed(folder, number++, split + message);
  }
  write_seed(folder, number++, split + rendezvous::encode(rendezvous::ValidateRequest{}));
  write_seed(folder, number, split + encode(OwnerQuestion{7, {{"10.0.0.1", 4000}, {"10.0.0.2", 29400}}}));
}

// Writes requests to the server of a page; http_fuzz puts its port in place of "@".
void write_http_seeds(const std::filesystem::path& folder) {
  const std::string host = "Host: localhost:@\r\n", end = "\r\n";
  int number = 0;
  for (const auto& request :
       {"GET / HTTP/1.1\r\n" + host + end, "GET /events HTTP/1.1\r\n" + host + "Last-Event-ID: 5e-1\r\n" + end,
        "GET /rank?rank=1 HTTP/1.1\r\n" + host + "Authorization: Bearer 0123\r\n" + end,
        "GET /state HTTP/1.0\r\n" + host + "Cookie: a=1; ddprun_@=0123\r\n" + end,
        "GET /login HTTP/1.1\r\nHost: [::1]:@\r\n" + end, "POST / HTTP/1.1\r\nHost: 127.0.0.1:@\r\n" + end,
        "GET / HTTP/1.1\r\n" + host + "Content-Length: 2\r\n" + end + "ab",
        "GET / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n" + end + "1\r\na\r\n0\r\n" + end,
        "GET / HTTP/1.1\r\n" + host + end + "GET /metrics HTTP/1.1\r\nHost: host\r\n" + end})
    write_seed(folder, number++, request);
}

// Writes small files for each reader of data_fuzz, and of the two below, which the first byte chooses.
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
  // The picture is a black pixel.
  write_seed(folder, 5,
             "\4\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x8\2\0\0\0\x90wS\xde\0\0\0\fIDATx\x9c"
             "c```\0\0\0\4\0\1\xf6\x17"
             "8U\0\0\0\0IEND\xae"
             "B`\x82"s);
  write_seed(folder, 6, "\4\xff\xd8\xff\xc0\0\x11\x8\0\1\0\1\3\1\x11\0\2\x11\0\3\x11\0\xff\xd9"s);
  write_seed(folder, 7, "\5\1\0\2\0\3\0\4\0\5\0\6\0\7\0"s);
}

void write_checkpoint_seeds(const std::filesystem::path& folder) {
  using namespace std::string_literals;
  const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"__metadata__":{"format":"pt"}})";
  write_seed(folder, 0, "\0"s + static_cast<char>(header.size()) + std::string(7, '\0') + header + "abcd");
  write_seed(folder, 1,
             "\1"
             R"({"format":"ddprun checkpoint","version":1,"step":3,"files":{"a":{"bytes":4,"sha256":"ab"}}})");
  write_seed(folder, 2,
             "\2"
             R"({"version":1,"step":9,"epoch":0,"samples":5,"seed":0,"world_size":2,"batch_size":6,"accumulate":1,)"
             R"("generation":0,"lr":5E-2,"best_loss":0.5,"loss_scale":{"scale":2,"good_steps":1},"config":{"a":"b"}})");
}

// Writes what stored::to_json() makes of a state with each kind of placement.
void write_placements_seed(const std::filesystem::path& folder) {
  write_seed(folder, 0,
             R"({"format":"ddprun placements","version":1,"ranks":8,"whole":false,"meshes":[[["pipeline",2],)"
             R"(["shard",2],["tensor",2]]],"buckets":[{"elements":20,"slots":[["a",0,6],["b",16,4]]}],)"
             R"("tensors":{"model":[{"name":"a","dtype":"F32","shape":[2,6],"mesh":0,"stages":[1],)"
             R"("shards":[{"axis":"tensor","dimension":1,"pieces":3,"unit":1,"copies":1,"padded":false}],)"
             R"("writers":[4,5]},{"name":"b","dtype":"BF16","shape":[5],"mesh":0,"shards":[{"axis":"tensor",)"
             R"("dimension":0,"pieces":1,"unit":1,"copies":1,"padded":true}],"writers":[0,1]},{"name":"c",)"
             R"("dtype":"I64","shape":[],"mesh":0,"stages":[0,1],"writers":[2]},{"name":"d","dtype":"F32",)"
             R"("shape":[0,3],"mesh":0,"writers":[]}],"optimizer":[{"name":"a.exp_avg","dtype":"F32","shape":[6],)"
             R"("mesh":0,"flat":{"axes":["shard"],"bucket":0,"slot":0},"writers":[0]},{"name":"b.exp_avg",)"
             R"("dtype":"F32","shape":[4],"mesh":0,"flat":{"axes":["shard"],"bucket":0,"slot":1},"writers":[3]},)"
             R"({"name":"m.momentum","dtype":"F32","shape":[4],"mesh":0,"owner":{"axis":"shard","coordinate":1},)"
             R"("writers":[6]}],"ema":[]}})");
}

void write_tokenizer_seeds(const std::filesystem::path& folder) {
  using namespace std::string_literals;
  write_seed(folder, 0, "\0It's  2024,\n the the \xc3\xa9t\xc3\xa9\xff"s);
  write_seed(folder, 1, "\1{\"a\": 0, \"b\": 1, \"ab\": 2}\0#version: 0.2\na b\n"s);
}

// Writes choices of redistribution_fuzz, one a byte.
void write_redistribution_seeds(const std::filesystem::path& folder) {
  for (int i = 0; i < 40; ++i) {
    std::string choices;
    for (int c = 0; c < 120; ++c) choices += static_cast<char>((i * 31 + c * (2 * i + 7)) % 251);
    write_seed(folder, i, choices);
  }
}

// Writes conversations as pmi_fuzz reads them: rank, length, lines.
void write_pmi_seeds(const std::filesystem::path& folder) {
  std::string conversation;
  int number = 0;
  for (const char* const line :
       {"cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=get_maxes\n", "cmd=get_my_kvsname\n",
        "cmd=put kvsname=job key=a value=1\n", "cmd=get kvsname=job key=a\n", "mcmd=spawn\nnprocs=1\nendcmd\n",
        "cmd=lookup_name service=a\n", "cmd=barrier_in\n", "cmd=abort exitcode=1\n", "cmd=finalize\n"}) {
    const std::string text = line;
    for (const char rank : {'\0', '\1', '\2'}) conversation += std::string{rank, static_cast<char>(text.size())} + text;
    write_seed(folder, number++, conversation);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path folder = argv[1];
  write_session_seeds(folder / "session_fuzz");
  write_data_seeds(folder / "data_fuzz");
  write_handshake_seeds(folder / "handshake_fuzz");
  write_http_seeds(folder / "http_fuzz");
  write_checkpoint_seeds(folder / "checkpoint_fuzz");
  write_placements_seed(folder / "placements_fuzz");
  write_tokenizer_seeds(folder / "tokenizer_fuzz");
  write_redistribution_seeds(folder / "redistribution_fuzz");
  write_pmi_seeds(folder / "pmi_fuzz");
  ddprun::testing::StoreJunk junk(1);
  for (int i = 0; i < 60; ++i) {
    std::string stream = "\x11", conversation;
    for (int m = 0; m <= i / 4; ++m) {
      const auto bytes = junk.request();
      stream += bytes;
      // The format is that of store_state_fuzz: sender, length, bytes.
      if (bytes.size() < 256)
        conversation += std::string{static_cast<char>(junk.below(4)), static_cast<char>(bytes.size())} + bytes;
    }
    write_seed(folder / "codec_fuzz", i, stream);
    write_seed(folder / "store_state_fuzz", i, conversation);
  }
  return 0;
}
