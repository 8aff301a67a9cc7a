// What the sanitizers must be told when a thread changes its stack. Each function is empty in a
// build without that sanitizer.
//
// AddressSanitizer: the bounds of the stack that is switched to. ThreadSanitizer: every thread of a
// block is a TSan fiber, switched to without synchronisation, so that only what a barrier orders
// counts as ordered; SHARDPROOF_TSAN is set for the block runner, which is itself compiled without
// instrumentation because its state is shared by all fibers by design.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(SHARDPROOF_TSAN)
extern "C" {
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void* __tsan_get_current_fiber();
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif

namespace shardproof::host::sanitizer {

#if defined(SHARDPROOF_TSAN)
inline constexpr bool thread = true;
inline void* create_fiber() { return __tsan_create_fiber(0); }
inline void destroy_fiber(void* fiber) { __tsan_destroy_fiber(fiber); }
inline void* current_fiber() { return __tsan_get_current_fiber(); }
inline void switch_to(void* fiber) { __tsan_switch_to_fiber(fiber, 1); }  // 1: do not synchronise
inline void acquire(void* address) { __tsan_acquire(address); }
inline void release(void* address) { __tsan_release(address); }
#else
inline constexpr bool thread = false;
inline void* create_fiber() { return nullptr; }
inline void destroy_fiber(void*) {}
inline void* current_fiber() { return nullptr; }
inline void switch_to(void*) {}
inline void acquire(void*) {}
inline void release(void*) {}
#endif

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool address = true;
inline void before_jump(void** fake_stack, const void* bottom, std::size_t size) {
  __sanitizer_start_switch_fiber(fake_stack, bottom, size);
}
inline void after_jump(void* fake_stack, const void** old_bottom, std::size_t* old_size) {
  __sanitizer_finish_switch_fiber(fake_stack, old_bottom, old_size);
}
inline void poison(const void* start, std::size_t size) { ASAN_POISON_MEMORY_REGION(start, size); }
inline void unpoison(const void* start, std::size_t size) {
  ASAN_UNPOISON_MEMORY_REGION(start, size);
}
#else
inline constexpr bool address = false;
inline void before_jump(void**, const void*, std::size_t) {}
inline void after_jump(void*, const void**, std::size_t*) {}
inline void poison(const void*, std::size_t) {}
inline void unpoison(const void*, std::size_t) {}
#endif

}  // namespace shardproof::host::sanitizer
