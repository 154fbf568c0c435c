/* Collectives of float32 by an MPI, measured as by ddprun-bench: inputs rewritten before each call, a barrier through
 * flags in shared memory (after MPI_Barrier one rank starts before the other, which then finds its peer's data when it
 * calls), times of all ranks pooled, results verified. One JSON object a line.
 * usage: mpirun -n N mpi_collectives NAME OP MIN_BYTES MAX_BYTES SECONDS      sizes grow by factors of four */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct flag {
  _Alignas(128) atomic_uint value;
};

static int rank, ranks, spins;
static struct flag* arrived; /* one per rank */
static unsigned barriers;
static const char* op;
static float *input, *output;

static float value(int r, size_t i) {
  return (float)(r % 4 + 1 + (int)((i % 1021 * 2654435761u >> 8) % 3));
}

static void prepare_flag_barrier(void) {
  MPI_Win window;
  MPI_Aint bytes = rank == 0 ? (MPI_Aint)(sizeof(struct flag) * (size_t)(ranks + 1)) : 0;
  char* base;
  int unit;
  MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
  MPI_Win_shared_query(window, 0, &bytes, &unit, &base);
  arrived = (struct flag*)(base + (128 - (size_t)base % 128) % 128);
  atomic_store(&arrived[rank].value, 0);
  MPI_Barrier(MPI_COMM_WORLD);
  cpu_set_t processors; /* of all ranks: an MPI may have bound each to one */
  sched_getaffinity(0, sizeof processors, &processors);
  MPI_Allreduce(MPI_IN_PLACE, &processors, sizeof processors, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
  spins = CPU_COUNT(&processors) >= ranks ? 20000 : 20;
}

/* As SharedMapping::barrier of ddprun-bench. */
static void flag_barrier(void) {
  atomic_store_explicit(&arrived[rank].value, ++barriers, memory_order_release);
  for (int r = 0; r < ranks; ++r) {
    for (int spin = 0; (int)(atomic_load_explicit(&arrived[r].value, memory_order_acquire) - barriers) < 0; ++spin) {
      if (spin < spins) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
      } else {
        sched_yield();
      }
    }
  }
}

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int is(const char* name) {
  return strcmp(op, name) == 0;
}

static void allreduce(int count, int part) {
  (void)part;
  MPI_Allreduce(MPI_IN_PLACE, input, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void reduce(int count, int part) {
  (void)part;
  MPI_Reduce(rank ? input : MPI_IN_PLACE, input, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
}
static void broadcast(int count, int part) {
  (void)part;
  MPI_Bcast(input, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}
static void allgather(int count, int part) {
  (void)count;
  MPI_Allgather(input, part, MPI_FLOAT, output, part, MPI_FLOAT, MPI_COMM_WORLD);
}
static void reduce_scatter(int count, int part) {
  (void)count;
  MPI_Reduce_scatter_block(input, output, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void all_to_all(int count, int part) {
  (void)count;
  MPI_Alltoall(input, part, MPI_FLOAT, output, part, MPI_FLOAT, MPI_COMM_WORLD);
}
static void barrier(int count, int part) {
  (void)count, (void)part;
  MPI_Barrier(MPI_COMM_WORLD);
}

typedef void (*collective)(int count, int part);
static collective call;

static collective named(const char* name) {
  static const struct {
    const char* name;
    collective call;
  } all[] = {{"allreduce", allreduce},
             {"reduce", reduce},
             {"broadcast", broadcast},
             {"allgather", allgather},
             {"reduce_scatter", reduce_scatter},
             {"all_to_all", all_to_all},
             {"barrier", barrier}};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i)
    if (strcmp(name, all[i].name) == 0) return all[i].call;
  return NULL;
}

static double timed(size_t count) {
  for (size_t i = 0; i < count; ++i) input[i] = value(rank, i);
  const int part = (int)(count / (size_t)ranks);
  flag_barrier();
  const double start = now_us();
  call((int)count, part);
  return now_us() - start;
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
  if (argc == 6) call = named(argv[2]);
  if (!call) {
    if (rank == 0) fprintf(stderr, "usage: %s NAME OP MIN_BYTES MAX_BYTES SECONDS\n", argv[0]);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  op = argv[2];
  const size_t first = strtoull(argv[3], NULL, 10), most = strtoull(argv[4], NULL, 10);
  const double seconds = strtod(argv[5], NULL);
  input = malloc(most + 64);
  output = malloc(most + 64);
  memset(output, 0, most + 64);
  prepare_flag_barrier();
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
      printf(
          "{\"op\":\"%s\",\"backend\":\"%s\",\"ranks\":%d,\"dtype\":\"float32\",\"bytes\":%zu,\"registered\":false,"
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
