// A plain MPI program without reference to ddprun. Its argument selects what it does:
//   sum       adds the ranks, and prints the result at each
//   wait      waits in MPI for a message that nobody sends
//   abort N   rank 0 calls MPI_Abort with N, the others wait
//   leave     rank 0 exits with 0 after MPI_Init, the others wait
//   absent    rank 0 exits with 0 before MPI_Init
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mpi.h>
#include <unistd.h>

namespace {

void wait_for_nobody() {
  int value = 0;
  MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
}

void print_sum(int rank, int size) {
  int sum = 0, local_size = 0;
  MPI_Comm local = MPI_COMM_NULL;
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local);
  MPI_Comm_size(local, &local_size);
  MPI_Comm_free(&local);
  std::printf("rank %d of %d, %d on this host: sum %d\n", rank, size, local_size, sum);
}

}  // namespace

int main(int argc, char** argv) {
  const char* const action = argc > 1 ? argv[1] : "sum";
  const auto is = [&](const char* name) { return std::strcmp(action, name) == 0; };
  if (is("absent") && std::strcmp(std::getenv("RANK"), "0") == 0) return 0;
  MPI_Init(nullptr, nullptr);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (is("sum")) print_sum(rank, size);
  if (is("leave") && rank == 0) std::_Exit(0);
  if (is("abort") && rank == 0) MPI_Abort(MPI_COMM_WORLD, std::atoi(argv[2]));
  if (!is("sum")) {
    std::puts("waiting");
    std::fflush(stdout);
    wait_for_nobody();
  }
  MPI_Finalize();
  return 0;
}
