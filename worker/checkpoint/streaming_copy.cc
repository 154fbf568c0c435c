#include "worker/checkpoint/streaming_copy.h"

#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace ddprun::checkpoint {

void copy_streaming(std::byte* to, std::span<const std::byte> from) {
  std::size_t done = 0;
#ifdef __SSE2__
  constexpr std::size_t line = 64, word = sizeof(__m128i);
  for (; done + line <= from.size(); done += line)
    for (std::size_t i = done; i < done + line; i += word)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from.data() + i)));
  _mm_sfence();  // before another thread is told that the copy is there
#endif
  if (done < from.size()) std::memcpy(to + done, from.data() + done, from.size() - done);
}

}  // namespace ddprun::checkpoint
