/* An MPI's collectives of float32, timed as ddprun-bench does: inputs written anew and a barrier before each call, the
 * times of all ranks pooled, results compared with what is right. One JSON object a line.
 * usage: mpirun -n N mpi_collectives NAME OP MIN_BYTES MAX_BYTES SECONDS      sizes go by fours */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;
static const char* op;
static float *input, *output;

static float value(int r, size_t i) { return (float)(r % 4 + 1 + (int)((i % 1021 * 2654435761u >> 8) % 3)); }

static int is(const char* name) { return strcmp(op, name) == 0; }

static void call(size_t count) {
  const int part = (int)(count / (size_t)ranks);
  if (is("allreduce")) MPI_Allreduce(MPI_IN_PLACE, input, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  if (is("reduce"))
    MPI_Reduce(rank ? input : MPI_IN_PLACE, input, (int)count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (is("broadcast")) MPI_Bcast(input, (int)count, MPI_FLOAT, 0, MPI_COMM_WORLD);
  if (is("allgather")) MPI_Allgather(input, part, MPI_FLOAT, output, part, MPI_FLOAT, MPI_COMM_WORLD);
  if (is("reduce_scatter")) MPI_Reduce_scatter_block(input, output, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  if (is("all_to_all")) MPI_Alltoall(input, part, MPI_FLOAT, output, part, MPI_FLOAT, MPI_COMM_WORLD);
  if (is("barrier")) MPI_Barrier(MPI_COMM_WORLD);
}

static double timed(size_t count) {
  for (size_t i = 0; i < count; ++i) input[i] = value(rank, i);
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  call(count);
  return (MPI_Wtime() - start) * 1e6;
}

static void verify(size_t count) {
  if (!is("allreduce")) return;
  for (size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int r = 0; r < ranks; ++r) sum += value(r, i);
    if (input[i] == sum) continue;
    fprintf(stderr, "%s: element %zu of %zu is wrong at rank %d\n", op, i, count, rank);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 6) {
    if (rank == 0) fprintf(stderr, "usage: %s NAME OP MIN_BYTES MAX_BYTES SECONDS\n", argv[0]);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  op = argv[2];
  const size_t first = strtoull(argv[3], NULL, 10), most = strtoull(argv[4], NULL, 10);
  const double seconds = strtod(argv[5], NULL);
  input = malloc(most + 64);
  output = malloc(most + 64);
  memset(output, 0, most + 64);
  for (size_t bytes = first; bytes <= most; bytes *= 4) {
    size_t count = bytes / sizeof(float);
    if (count < (size_t)ranks && !is("allreduce") && !is("reduce") && !is("broadcast")) count = (size_t)ranks;
    for (int i = 0; i < 3; ++i) timed(count);
    const double each = (timed(count) + timed(count)) / 2;
    int calls = (int)(seconds * 1e6 / (each + (double)bytes / 4000 + 1));
    calls = calls < 10 ? 10 : calls > 20000 ? 20000 : calls;
    MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
    double *own = malloc(sizeof(double) * (size_t)calls), *all = malloc(sizeof(double) * (size_t)(calls * ranks));
    for (int i = 0; i < calls; ++i) own[i] = timed(count);
    verify(count);
    MPI_Gather(own, calls, MPI_DOUBLE, all, calls, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (rank == 0) {
      const int n = calls * ranks;
      qsort(all, (size_t)n, sizeof(double), ascending);
      printf("{\"op\":\"%s\",\"backend\":\"%s\",\"ranks\":%d,\"dtype\":\"float32\",\"bytes\":%zu,\"registered\":false,"
             "\"min_us\":%.3f,\"p50_us\":%.3f,\"p99_us\":%.3f}\n",
             op, argv[1], ranks, count * sizeof(float), all[0], all[n / 2], all[(size_t)(n * 0.99)]);
      fflush(stdout);
    }
    free(own);
    free(all);
  }
  MPI_Finalize();
  return 0;
}
