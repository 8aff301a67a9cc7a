// What the built-in device asks of a machine, on NVIDIA GPUs: one GPU, stream and cuBLAS handle a
// replica, one NCCL communicator over all. The host's has the same members
// (device/runtime/host/backend.h).
#pragma once

#include <cublas_v2.h>
#include <nccl.h>

#include <cstddef>
#include <string>
#include <vector>

#include "device/runtime/cuda_subset.h"

namespace shardproof::cuda {

class Backend {
 public:
  // Throws DeviceError when there is no driver or there are fewer GPUs than replicas.
  explicit Backend(int replicas) {
    if (replicas < 1) throw DeviceError("the CUDA device needs at least one replica");
    int gpus = 0;
    const cudaError_t error = cudaGetDeviceCount(&gpus);
    if (error != cudaSuccess) {
      throw DeviceError(std::string("no GPU can be used: ") + cudaGetErrorString(error) +
                        "; use the host backend, or a machine with an NVIDIA driver");
    }
    if (gpus < replicas) {
      throw DeviceError(std::to_string(replicas) + " replicas need as many GPUs, here are " +
                        std::to_string(gpus) + "; ask for fewer replicas");
    }
    try {
      start(replicas);
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Backend() { stop(); }
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  std::string name() const {
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    return std::to_string(replicas()) + " × " + properties.name;
  }
  int replicas() const { return static_cast<int>(units_.size()); }

  // Makes the replica's GPU the current one.
  Stream stream(int replica) { return select(replica).stream; }
  ncclComm_t communicator(int replica) {
    return communicators_.at(static_cast<std::size_t>(replica));
  }

  float* allocate(int replica, std::size_t count) {
    void* pointer = nullptr;
    check(cudaMallocAsync(&pointer, count * sizeof(float), select(replica).stream),
          "cudaMallocAsync of " + std::to_string(count) + " numbers");
    return static_cast<float*>(pointer);
  }
  void release(int replica, float* pointer) {
    check(cudaFreeAsync(pointer, select(replica).stream), "cudaFreeAsync");
  }
  void upload(int replica, float* to, const float* from, std::size_t count) {
    copy(replica, to, from, count, cudaMemcpyHostToDevice);
  }
  void download(int replica, const float* from, float* to, std::size_t count) {
    copy(replica, to, from, count, cudaMemcpyDeviceToHost);
  }
  void synchronize() {
    for (int replica = 0; replica < replicas(); ++replica) {
      check(cudaStreamSynchronize(select(replica).stream), "cudaStreamSynchronize");
    }
  }

  // c [rows, columns] = a [rows, depth] · b [depth, columns], row-major: cᵀ = bᵀ · aᵀ to cuBLAS,
  // which counts by columns.
  void multiply(int replica, std::size_t rows, std::size_t columns, std::size_t depth,
                const float* a, const float* b, float* c) {
    const Unit& unit = select(replica);
    const float one = 1.0f, zero = 0.0f;
    const int m = static_cast<int>(rows), n = static_cast<int>(columns);
    const int k = static_cast<int>(depth);
    check(cublasSgemm(unit.blas, CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &one, b, n, a, k, &zero, c, n),
          "cublasSgemm");
  }

 private:
  struct Unit {
    Stream stream = nullptr;
    cublasHandle_t blas = nullptr;
  };

  static void check(cudaError_t error, const std::string& what) { cuda::check(error, what); }
  static void check(cublasStatus_t status, const std::string& what) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw DeviceError(what + ": cuBLAS error: " + cublasGetStatusString(status));
  }

  void start(int replicas) {
    units_.resize(static_cast<std::size_t>(replicas));
    communicators_.resize(units_.size(), nullptr);
    for (int replica = 0; replica < replicas; ++replica) {
      Unit& unit = units_[static_cast<std::size_t>(replica)];
      check(cudaSetDevice(replica), "cudaSetDevice");
      check(cudaStreamCreate(&unit.stream), "cudaStreamCreate");
      check(cublasCreate(&unit.blas), "cublasCreate");
      check(cublasSetStream(unit.blas, unit.stream), "cublasSetStream");
    }
    const ncclResult_t result = ncclCommInitAll(communicators_.data(), replicas, nullptr);
    if (result != ncclSuccess) {
      throw DeviceError(std::string("ncclCommInitAll: ") + ncclGetErrorString(result));
    }
  }

  void stop() {
    for (ncclComm_t communicator : communicators_) {
      if (communicator != nullptr) ncclCommDestroy(communicator);
    }
    for (const Unit& unit : units_) {
      if (unit.blas != nullptr) cublasDestroy(unit.blas);
      if (unit.stream != nullptr) cudaStreamDestroy(unit.stream);
    }
  }

  Unit& select(int replica) {
    check(cudaSetDevice(replica), "cudaSetDevice");
    return units_.at(static_cast<std::size_t>(replica));
  }

  void copy(int replica, float* to, const float* from, std::size_t count, cudaMemcpyKind kind) {
    const Stream stream = select(replica).stream;
    check(cudaMemcpyAsync(to, from, count * sizeof(float), kind, stream), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }

  std::vector<Unit> units_;
  std::vector<ncclComm_t> communicators_;
};

}  // namespace shardproof::cuda
