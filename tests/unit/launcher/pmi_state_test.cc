#include "launcher/mpi/pmi_state.h"

#include "tests/support/catch.h"

using namespace ddprun;

namespace {

// Returns the state of a node that has two of the four ranks.
PmiState state() {
  return PmiState({.name = "job", .process_mapping = "(vector,(0,2,2))", .size = 4, .local_size = 2});
}

// Returns the only reply.
std::string answer(PmiState& pmi, const std::string& line, int local_rank = 0) {
  const auto actions = pmi.received(local_rank, line + "\n");
  REQUIRE(actions.replies.size() == 1);
  CHECK(actions.replies[0].local_rank == local_rank);
  CHECK(actions.violations.empty());
  return actions.replies[0].text;
}

std::string violation(PmiState& pmi, const std::string& bytes) {
  const auto actions = pmi.received(0, bytes);
  REQUIRE(actions.violations.size() == 1);
  return actions.violations[0].what;
}

}  // namespace

TEST_CASE("PMI: a process learns of the job what MPI_Init asks") {
  auto pmi = state();
  CHECK(answer(pmi, "cmd=init pmi_version=1 pmi_subversion=1") ==
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
  CHECK(answer(pmi, "cmd=get_maxes") == "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0\n");
  CHECK(answer(pmi, "cmd=get_appnum") == "cmd=appnum appnum=0 rc=0\n");
  CHECK(answer(pmi, "cmd=get_universe_size") == "cmd=universe_size size=4 rc=0\n");
  CHECK(answer(pmi, "cmd=get_my_kvsname") == "cmd=my_kvsname kvsname=job rc=0\n");
  CHECK(answer(pmi, "cmd=get kvsname=job key=PMI_process_mapping") ==
        "cmd=get_result rc=0 msg=success value=(vector,(0,2,2))\n");
  CHECK(answer(pmi, "cmd=finalize") == "cmd=finalize_ack rc=0\n");
}

TEST_CASE("PMI: version 2 is refused") {
  auto pmi = state();
  CHECK(answer(pmi, "cmd=init pmi_version=2 pmi_subversion=0") ==
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n");
}

TEST_CASE("PMI: what a rank puts, the others get") {
  auto pmi = state();
  CHECK(answer(pmi, "cmd=get kvsname=job key=a") == "cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
  CHECK(answer(pmi, "cmd=put kvsname=job key=a value=x=1#") == "cmd=put_result rc=0 msg=success\n");
  CHECK(answer(pmi, "cmd=get kvsname=job key=a", 1) == "cmd=get_result rc=0 msg=success value=x=1#\n");
  CHECK(answer(pmi, "cmd=get kvsname=other key=a").starts_with("cmd=get_result rc=-1"));
  CHECK(answer(pmi, "cmd=put kvsname=other key=b value=1").starts_with("cmd=put_result rc=-1"));
  CHECK(answer(pmi, "cmd=put kvsname=job key= value=1").starts_with("cmd=put_result rc=-1"));
  CHECK(answer(pmi, "cmd=put kvsname=job key=c value=" + std::string(1024, 'v')) ==
        "cmd=put_result rc=0 msg=success\n");
  CHECK(answer(pmi, "cmd=put kvsname=job key=d value=" + std::string(1025, 'v')).starts_with("cmd=put_result rc=-1"));
}

TEST_CASE("PMI: a value may have escaped spaces, and the name of the key-value space is optional") {
  auto pmi = state();
  CHECK(answer(pmi, R"(cmd=put key=a value=x\ y\\ key=b)") == "cmd=put_result rc=0 msg=success\n");
  CHECK(answer(pmi, "cmd=get key=a") == "cmd=get_result rc=0 msg=success value=x\\ y\\\\\n");
}

TEST_CASE("PMI: a barrier ends once the other nodes' pairs are here") {
  auto pmi = state();
  answer(pmi, "cmd=put kvsname=job key=a value=1");
  CHECK_FALSE(pmi.received(0, "cmd=barrier_in\n").fence);
  auto actions = pmi.received(1, "cmd=barrier_in\n");
  CHECK(actions.replies.empty());
  REQUIRE(actions.fence);
  CHECK(actions.fence->pairs == PmiPairs{{"a", "1"}});
  actions = pmi.fence_done({{"b", "2"}});
  REQUIRE(actions.replies.size() == 2);
  CHECK(actions.replies[1].text == "cmd=barrier_out rc=0\n");
  CHECK(answer(pmi, "cmd=get kvsname=job key=b").find("value=2") != std::string::npos);
  pmi.received(0, "cmd=barrier_in\n");
  CHECK(pmi.received(1, "cmd=barrier_in\n").fence->pairs.empty());  // only what is new
}

TEST_CASE("PMI: lines may arrive in any pieces") {
  auto pmi = state();
  CHECK(pmi.received(0, "cmd=get_a").replies.empty());
  CHECK(pmi.received(1, "cmd=get_appnum\n").replies.size() == 1);
  CHECK(pmi.received(0, "ppnum\ncmd=get_maxes\ncmd=").replies.size() == 2);
}

TEST_CASE("PMI: spawning and names are refused") {
  auto pmi = state();
  CHECK(pmi.received(0, "mcmd=spawn\nnprocs=1\nexecname=x\n").replies.empty());
  CHECK(answer(pmi, "endcmd").starts_with("cmd=spawn_result rc=-1"));
  CHECK(pmi.received(0, "mcmd=spawn\ntotspawns=2\nspawnssofar=1\nendcmd\nmcmd=spawn\n").replies.empty());
  CHECK(answer(pmi, "totspawns=2\nspawnssofar=2\nendcmd").starts_with("cmd=spawn_result rc=-1"));
  CHECK(answer(pmi, "cmd=publish_name service=a port=b").starts_with("cmd=publish_result rc=-1"));
  CHECK(answer(pmi, "cmd=unpublish_name service=a").starts_with("cmd=unpublish_result rc=-1"));
  CHECK(answer(pmi, "cmd=lookup_name service=a").starts_with("cmd=lookup_result rc=-1"));
}

TEST_CASE("PMI: nothing is read after what the protocol does not have") {
  auto pmi = state();
  CHECK(violation(pmi, "cmd=mput a=1\ncmd=get_maxes\n") == "'cmd=mput a=1'");
  CHECK(pmi.received(0, "cmd=get_maxes\n").replies.empty());
  CHECK(pmi.received(1, "cmd=get_maxes\n").replies.size() == 1);
  auto other = state();
  other.received(0, "cmd=barrier_in\n");
  CHECK(violation(other, "cmd=get_maxes\n") == "'cmd=get_maxes' inside of a barrier");
  auto flooded = state();
  CHECK(violation(flooded, std::string(5000, 'x')) == "a line of more than 4096 bytes");
}

TEST_CASE("PMI: an abort has its exit code") {
  auto pmi = state();
  const auto actions = pmi.received(1, "cmd=abort exitcode=3\n");
  CHECK(actions.replies.empty());
  REQUIRE(actions.aborts.size() == 1);
  CHECK(actions.aborts[0].local_rank == 1);
  CHECK(actions.aborts[0].exit_code == 3);
}

TEST_CASE("PMI: a rank for which others wait may not exit") {
  auto pmi = state();
  CHECK(pmi.complaint(0).empty());  // no MPI process
  answer(pmi, "cmd=init pmi_version=1 pmi_subversion=1");
  CHECK(pmi.complaint(0) == "it exited without MPI_Finalize");
  answer(pmi, "cmd=finalize");
  CHECK(pmi.complaint(0).empty());
  CHECK(pmi.complaint(1) == "it exited without MPI_Init, in which other ranks wait for it");
}

TEST_CASE("PMI: the process mapping names runs of nodes alike") {
  CHECK(pmi_process_mapping({4}) == "(vector,(0,1,4))");
  CHECK(pmi_process_mapping({4, 4, 1}) == "(vector,(0,2,4),(2,1,1))");
}

TEST_CASE("PMI: each job and each round has a name of its own") {
  CHECK(pmi_job_name("host-1-ab", 0) == pmi_job_name("host-1-ab", 0));
  CHECK(pmi_job_name("host-1-ab", 0) != pmi_job_name("host-1-ac", 0));
  CHECK(pmi_job_name("host-1-ab", 0) != pmi_job_name("host-1-ab", 1));
}

TEST_CASE("PMI: pairs survive the store") {
  const PmiPairs pairs{{"a", "1=2"}, {"b", ""}};
  CHECK(decode_pmi_pairs(encode_pmi_pairs(pairs)) == pairs);
  CHECK(decode_pmi_pairs(encode_pmi_pairs({})) == PmiPairs{});
  for (const auto* text : {"", "left", "+a", "+a\n", "+a\n1\nb\n"}) CHECK_FALSE(decode_pmi_pairs(text));
}
