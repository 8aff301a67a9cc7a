// Which thread of a block runs next. A correct kernel gives the same bits under every schedule; a
// missing barrier gives a result that depends on it.
//
// Measured on seeded bugs (200 seeds): uniform choice never finds a missing barrier before shared
// memory is reused, since no warp gets a whole phase ahead of the others; random warp priorities
// that seldom change (Burckhardt and others, "A Randomized Scheduler with Probabilistic Guarantees
// of Finding Bugs", 2010) find it under every seed. Hence both kinds.
#pragma once

#if defined(__BMI2__)
#include <immintrin.h>
#endif

#include <array>
#include <cstdint>
#include <vector>

namespace shardproof::host {

enum class Schedule { in_order, uniform, warp_priorities };

// Seed 0 runs threads in order, odd seeds uniformly at random, even ones by warp priority.
constexpr Schedule schedule_of(std::uint64_t seed) {
  if (seed == 0) return Schedule::in_order;
  return seed % 2 == 1 ? Schedule::uniform : Schedule::warp_priorities;
}

class Scheduler {
 public:
  static constexpr int warp_size = 32;
  static constexpr int max_threads = 1024;
  static constexpr int max_warps = max_threads / warp_size;
  static constexpr int none = -1;

  // Makes `threads` (at most 1024) threads of block number `block` runnable.
  void begin(std::uint64_t seed, std::uint64_t block, int threads) {
    schedule_ = schedule_of(seed);
    threads_ = threads;
    unstarted_ = 0;
    queue_.clear();
    queue_head_ = 0;
    if (schedule_ == Schedule::in_order) return;
    random_ = mix(seed ^ mix(block + 1)) | 1;
    warps_ = (threads + warp_size - 1) / warp_size;
    waiting_ranks_ = 0;
    for (int warp = 0; warp < warps_; ++warp) {
      const int other = static_cast<int>(draw(static_cast<std::uint32_t>(warp) + 1));
      warp_at_rank_[at(warp)] = warp_at_rank_[at(other)];
      warp_at_rank_[at(other)] = static_cast<std::uint8_t>(warp);
      runnable_[at(warp)] = ~std::uint32_t{0};
    }
    for (int rank = 0; rank < warps_; ++rank) {
      rank_of_warp_[warp_at_rank_[at(rank)]] = static_cast<std::uint8_t>(rank);
    }
    waiting_ranks_ = ~std::uint32_t{0} >> (max_warps - warps_);
    runnable_[at(warps_ - 1)] >>= warps_ * warp_size - threads;
  }

  // Lanes of one warp, none of which is runnable.
  void make_runnable(int warp, std::uint32_t lanes) {
    if (schedule_ == Schedule::in_order) {
      for (; lanes != 0; lanes &= lanes - 1) {
        queue_.push_back(warp * warp_size + __builtin_ctz(lanes));
      }
      return;
    }
    runnable_[at(warp)] |= lanes;
    waiting_ranks_ |= 1u << rank_of_warp_[at(warp)];
  }

  // Takes one runnable thread, or `none`.
  int pick() {
    if (schedule_ == Schedule::in_order) return pick_in_order();
    if (waiting_ranks_ == 0) return none;
    int rank;
    if (schedule_ == Schedule::uniform) {
      rank = draw_bit(waiting_ranks_);
    } else {
      if (warps_ > 1 && draw(picks_between_changes) == 0) swap_two_priorities();
      rank = __builtin_ctz(waiting_ranks_);
    }
    const int warp = warp_at_rank_[at(rank)];
    std::uint32_t& lanes = runnable_[at(warp)];
    const int lane = draw_bit(lanes);
    lanes &= ~(1u << lane);
    if (lanes == 0) waiting_ranks_ &= ~(1u << rank);
    return warp * warp_size + lane;
  }

 private:
  static constexpr std::uint32_t picks_between_changes = 128;

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  // SplitMix64 (Steele, Lea, Flood 2014).
  static std::uint64_t mix(std::uint64_t z) {
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  // Xorshift64* (Vigna 2016): a number below `bound`.
  std::uint32_t draw(std::uint32_t bound) {
    random_ ^= random_ >> 12;
    random_ ^= random_ << 25;
    random_ ^= random_ >> 27;
    const std::uint64_t high = (random_ * 0x2545F4914F6CDD1Du) >> 32;
    return static_cast<std::uint32_t>((high * bound) >> 32);
  }

  // One of the bits that are set, of which there is one at least.
  int draw_bit(std::uint32_t bits) {
    const auto set = static_cast<std::uint32_t>(__builtin_popcount(bits));
    std::uint32_t skip = set > 1 ? draw(set) : 0;
#if defined(__BMI2__)
    return __builtin_ctz(_pdep_u32(1u << skip, bits));
#else
    for (; skip > 0; --skip) bits &= bits - 1;
    return __builtin_ctz(bits);
#endif
  }

  int pick_in_order() {
    if (unstarted_ < threads_) return unstarted_++;
    if (queue_head_ == queue_.size()) return none;
    const int thread = queue_[queue_head_++];
    if (queue_head_ == queue_.size()) {
      queue_.clear();
      queue_head_ = 0;
    }
    return thread;
  }

  void swap_two_priorities() {
    const int a = static_cast<int>(draw(static_cast<std::uint32_t>(warps_)));
    const int b = static_cast<int>(draw(static_cast<std::uint32_t>(warps_)));
    std::swap(warp_at_rank_[at(a)], warp_at_rank_[at(b)]);
    rank_of_warp_[warp_at_rank_[at(a)]] = static_cast<std::uint8_t>(a);
    rank_of_warp_[warp_at_rank_[at(b)]] = static_cast<std::uint8_t>(b);
    const bool differ = ((waiting_ranks_ >> a ^ waiting_ranks_ >> b) & 1) != 0;
    if (differ) waiting_ranks_ ^= 1u << a | 1u << b;
  }

  Schedule schedule_ = Schedule::in_order;
  int threads_ = 0;

  int unstarted_ = 0;
  std::vector<int> queue_;
  std::size_t queue_head_ = 0;

  std::uint64_t random_ = 1;
  int warps_ = 0;
  std::uint32_t waiting_ranks_ = 0;  // bit r: the warp of priority r has a runnable thread
  std::array<std::uint8_t, max_warps> warp_at_rank_{};
  std::array<std::uint8_t, max_warps> rank_of_warp_{};
  std::array<std::uint32_t, max_warps> runnable_{};  // a bit a lane
};

}  // namespace shardproof::host
