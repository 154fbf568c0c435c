#pragma once

#include <cstdint>
#include <cuda_runtime.h>

#include "worker/tensor/cuda/module/pack.h"
#include "worker/tensor/cuda/module/unroll.h"

// Access to rows of any length by packs of 16 bytes, the largest load and store of a thread.
namespace ddprun::cuda {

template <class T>
using Chunk = Pack<T, pack_size<T>>;

// Elements beyond count are zero. aligned: `from` is, so that a whole chunk is one load.
template <class T>
__device__ __forceinline__ Chunk<T> load_chunk(const T* from, std::int64_t count, bool aligned) {
  if (aligned && count >= pack_size<T>) return load_pack<pack_size<T>>(from, true);
  Chunk<T> chunk;
  DDPRUN_UNROLL
  for (int i = 0; i < pack_size<T>; ++i) chunk.elements[i] = i < count ? from[i] : T(0);
  return chunk;
}

// Elements beyond count are not stored.
template <class T>
__device__ __forceinline__ void store_chunk(const Chunk<T>& chunk, std::int64_t count, bool aligned, T* to) {
  if (aligned && count >= pack_size<T>) return store_pack(chunk, to, true);
  DDPRUN_UNROLL
  for (int i = 0; i < pack_size<T>; ++i)
    if (i < count) to[i] = chunk.elements[i];
}

}  // namespace ddprun::cuda
