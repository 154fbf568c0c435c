#pragma once

// DDPRUN_SANITIZED is defined where a sanitizer watches memory or threads.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DDPRUN_SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DDPRUN_SANITIZED 1
#endif
