// parallel_for: plain threads that take indices from one counter. The order in which indices run is
// open, so a caller whose results must not depend on the number of threads lets each index write
// its own numbers and adds across indices itself.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <thread>
#include <type_traits>
#include <vector>

namespace shardproof {

// Calls function(index), or function(index, worker) where it takes two, once for every index below
// count; worker < max(threads, 1) tells which thread runs it, so that scratch can be kept a worker.
// One thread runs inline. The first exception ends the run and is thrown here.
template <class Function>
void parallel_for(unsigned threads, std::size_t count, Function&& function) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;
  const auto work = [&](unsigned worker) {
    try {
      for (std::size_t index; !failed && (index = next++) < count;) {
        if constexpr (std::is_invocable_v<Function&, std::size_t, unsigned>) {
          function(index, worker);
        } else {
          function(index);
        }
      }
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (unsigned worker = 1; worker < std::min<std::size_t>(threads, count); ++worker) {
      others.emplace_back(work, worker);
    }
    work(0);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace shardproof
