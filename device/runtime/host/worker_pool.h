// A standing pool of threads that share out numbered items. No thread is made a call, and nobody
// spins: a busy neighbour costs only its share of the cores.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace shardproof::host {

class WorkerPool {
 public:
  // `workers` counts the calling thread, which works too. At least 1.
  explicit WorkerPool(int workers);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int workers() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls work(worker, item) once for each item below `items`, in any order; returns when all are
  // done. After an exception no further item starts, and the first one is thrown here. Calls from
  // several threads take turns. `worker` is below workers(), and one worker runs one item at a
  // time.
  void run(std::uint64_t items, const std::function<void(int worker, std::uint64_t item)>& work);

 private:
  struct Job;
  void serve(int worker);

  std::mutex turn_;
  std::mutex mutex_;
  std::condition_variable work_waits_;
  std::condition_variable worker_left_;
  Job* job_ = nullptr;
  std::uint64_t generation_ = 0;
  int inside_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace shardproof::host
