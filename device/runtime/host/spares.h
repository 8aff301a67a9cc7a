// Spares: what ended devices leave on an OS thread for its next device, as malloc keeps freed
// memory, since making mappings anew costs more than a small launch. Nothing in them may tell one
// device of another. First in, first out, so that memory rests for as long as it can. Sanitizer
// builds keep none, so that each device starts on what the sanitizer knows as fresh. `capacity` is
// small where an item holds many mappings: a process has room for 65530, shared by all its threads.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

namespace shardproof::host {

template <class T, std::size_t capacity>
class Spares {
 public:
  Spares() = default;
  ~Spares() { ended_ = true; }
  Spares(const Spares&) = delete;
  Spares& operator=(const Spares&) = delete;

  std::optional<T> take() {
    if (ended_ || items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  // False, with `item` untouched, when there is no room.
  bool give(T& item) {
    if (!keeps || ended_ || items_.size() >= capacity) return false;
    items_.push_back(std::move(item));
    return true;
  }

 private:
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static constexpr bool keeps = false;
#else
  static constexpr bool keeps = true;
#endif
  // A device with static storage outlives its thread's spares.
  static inline thread_local bool ended_ = false;
  std::deque<T> items_;
};

}  // namespace shardproof::host
