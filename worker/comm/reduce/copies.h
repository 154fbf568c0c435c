// The loops that copy memory, compiled in each including file for its kind of processor: see loops.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/comm/reduce/formats.h"

namespace ddprun::comm {
namespace {

// Copies the first and the last N bytes, which may overlap and together are all.
template <std::size_t Size>
void copy_ends(unsigned char* out, const unsigned char* in, std::size_t bytes) {
  unsigned char first[Size], last[Size];
  __builtin_memcpy(first, in, Size);
  __builtin_memcpy(last, in + bytes - Size, Size);
  __builtin_memcpy(out, first, Size);
  __builtin_memcpy(out + bytes - Size, last, Size);
}

// Copies less than a vector.
void copy_few(unsigned char* out, const unsigned char* in, std::size_t bytes) {
  if (bytes >= 32) return copy_ends<32>(out, in, bytes);
  if (bytes >= 16) return copy_ends<16>(out, in, bytes);
  if (bytes >= 8) return copy_ends<8>(out, in, bytes);
  if (bytes >= 4) return copy_ends<4>(out, in, bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = in[i];
}

[[gnu::always_inline]] inline void copy_vector(unsigned char* out, const unsigned char* in) {
  Plain<unsigned char>::store_vector(out, Plain<unsigned char>::load_vector(in));
}

// Loads and stores instead of memcpy, which on some processors uses an instruction with a slow start: every small
// collective copies.
void copy_loop(void* to, const void* from, std::size_t bytes) {
  auto* const out = static_cast<unsigned char*>(to);
  const auto* const in = static_cast<const unsigned char*>(from);
  if (bytes < vector_bytes) return copy_few(out, in, bytes);
  std::size_t i = 0;
  for (; i + vector_bytes <= bytes; i += vector_bytes) copy_vector(out + i, in + i);
  if (i == bytes) return;
  i = bytes - vector_bytes;  // overlaps the bytes before
  copy_vector(out + i, in + i);
}

constexpr std::size_t line_bytes = 64, page_bytes = 4096, lines_of_page = page_bytes / line_bytes;
// From this size on two pages are copied at a time.
constexpr std::size_t min_bytes_of_pages = 32 << 10;

// True if __builtin_prefetch(p, 1) fetches a line to write it. Otherwise it fetches it to read it, and the first store
// to it would wait for the other ranks once more.
#if defined(__x86_64__) && !defined(__PRFCHW__)
constexpr bool prefetches_for_writing = false;
#else
constexpr bool prefetches_for_writing = true;
#endif

void prefetch_for_writing_loop(void* memory, std::size_t bytes) {
  if (!prefetches_for_writing) return;
  const auto* const first = static_cast<const unsigned char*>(memory);
  for (std::size_t i = 0; i < bytes; i += line_bytes) __builtin_prefetch(first + i, 1);
}

// Copies pairs of pages, a line of each page in turn: a processor fetches lines ahead within a page, and does so in
// several pages at once. It prefetches lines for writing that many turns ahead. Returns the bytes copied, which are as
// many pairs as there are.
template <std::size_t turns_ahead>
std::size_t copy_pairs_of_pages(unsigned char* out, const unsigned char* in, std::size_t bytes) {
  constexpr std::size_t pages = 2;
  const auto offset = [](std::size_t turn, std::size_t page) {
    return (turn / lines_of_page * pages + page) * page_bytes + turn % lines_of_page * line_bytes;
  };
  const auto turns = bytes / (pages * page_bytes) * lines_of_page;
  const auto prefetch = [&](std::size_t turn) {
    for (std::size_t page = 0; page < pages; ++page) __builtin_prefetch(out + offset(turn, page), 1);
  };
  for (std::size_t turn = 0; turn < turns_ahead && turn < turns; ++turn) prefetch(turn);
  for (std::size_t turn = 0; turn < turns; ++turn) {
    if (turns_ahead > 0 && turn + turns_ahead < turns) prefetch(turn + turns_ahead);
    for (std::size_t page = 0; page < pages; ++page) {
      const auto at = offset(turn, page);
      for (std::size_t i = 0; i < line_bytes; i += vector_bytes) copy_vector(out + at + i, in + at + i);
    }
  }
  return turns / lines_of_page * pages * page_bytes;
}

// Starts where a line of the output starts: stores to parts of two lines take twice as long.
void copy_from_peer_loop(void* to, const void* from, std::size_t bytes) {
  if (bytes < min_bytes_of_pages) return copy_loop(to, from, bytes);
  auto* const out = static_cast<unsigned char*>(to);
  const auto* const in = static_cast<const unsigned char*>(from);
  const auto head = (line_bytes - reinterpret_cast<std::uintptr_t>(out) % line_bytes) % line_bytes;
  copy_loop(out, in, head);
  const auto done = head + copy_pairs_of_pages<0>(out + head, in + head, bytes - head);
  copy_loop(out + done, in + done, bytes - done);
}

// Prefetches the lines that it will write: stores become visible in order, so that each store to a line that a peer has
// cached would otherwise wait for that line alone.
void copy_for_peers_loop(void* to, const void* from, std::size_t bytes) {
  if (!prefetches_for_writing) return copy_loop(to, from, bytes);
  constexpr std::size_t turns_ahead = 8, ahead = 16 * line_bytes;
  auto* const out = static_cast<unsigned char*>(to);
  const auto* const in = static_cast<const unsigned char*>(from);
  auto i = bytes < min_bytes_of_pages ? 0 : copy_pairs_of_pages<turns_ahead>(out, in, bytes);
  prefetch_for_writing_loop(out + i, bytes - i < ahead ? bytes - i : ahead);
  for (; i + ahead + line_bytes <= bytes; i += line_bytes) {
    __builtin_prefetch(out + i + ahead, 1);
    copy_loop(out + i, in + i, line_bytes);
  }
  copy_loop(out + i, in + i, bytes - i);
}

void copy_past_caches_loop(void* to, const void* from, std::size_t bytes) {
#if defined(__x86_64__)
  auto* out = static_cast<unsigned char*>(to);
  const auto* in = static_cast<const unsigned char*>(from);
  constexpr std::size_t line = 64;
  const auto ahead = (line - reinterpret_cast<std::uintptr_t>(out) % line) % line;
  if (bytes < ahead + line) return copy_loop(to, from, bytes);
  __builtin_memcpy(out, in, ahead);
  std::size_t i = ahead;
  for (; i + line <= bytes; i += line) {
#if defined(__AVX512F__)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(out + i), _mm512_loadu_si512(in + i));
#else
    for (std::size_t j = 0; j < line; j += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(out + i + j),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i + j)));
#endif
  }
  _mm_sfence();  // non-temporal stores are not ordered otherwise
  __builtin_memcpy(out + i, in + i, bytes - i);
#else
  copy_loop(to, from, bytes);
#endif
}

}  // namespace
}  // namespace ddprun::comm
