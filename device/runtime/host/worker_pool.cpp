#include "device/runtime/host/worker_pool.h"

#include <atomic>
#include <exception>
#include <stdexcept>

namespace shardproof::host {

struct WorkerPool::Job {
  std::uint64_t items;
  const std::function<void(int, std::uint64_t)>& work;
  std::atomic<std::uint64_t> next{0};
  std::mutex failure_mutex;
  std::exception_ptr failure;

  void take_items(int worker) {
    try {
      for (std::uint64_t item; (item = next.fetch_add(1)) < items;) work(worker, item);
    } catch (...) {
      next = items;
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
  }
};

WorkerPool::WorkerPool(int workers) {
  if (workers < 1) throw std::invalid_argument("a worker pool needs at least one worker");
  for (int worker = 1; worker < workers; ++worker) {
    threads_.emplace_back([this, worker] { serve(worker); });
  }
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_waits_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::serve(int worker) {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    work_waits_.wait(lock, [&] { return stopping_ || generation_ != seen; });
    if (stopping_) return;
    seen = generation_;
    Job* const job = job_;
    if (job == nullptr) continue;  // the others finished it before this thread woke
    ++inside_;
    lock.unlock();
    job->take_items(worker);
    lock.lock();
    if (--inside_ == 0) worker_left_.notify_one();
  }
}

void WorkerPool::run(std::uint64_t items, const std::function<void(int, std::uint64_t)>& work) {
  const std::lock_guard turn(turn_);
  Job job{items, work, {}, {}, {}};
  const bool shared = items > 1 && !threads_.empty();
  if (shared) {
    {
      const std::lock_guard lock(mutex_);
      job_ = &job;
      ++generation_;
    }
    work_waits_.notify_all();
  }
  job.take_items(0);
  if (shared) {
    std::unique_lock lock(mutex_);
    job_ = nullptr;
    worker_left_.wait(lock, [&] { return inside_ == 0; });
  }
  if (job.failure) std::rethrow_exception(job.failure);
}

}  // namespace shardproof::host
