# Adds the CUDA, cuBLAS and NCCL build of the device to shardproof_device and sets
# SHARDPROOF_HAS_CUDA, or says why not. The program links cudart, cuBLAS and NCCL, never the driver,
# so that it starts on a machine without one.

set(SHARDPROOF_CUDA_ARCHITECTURES "90-real" CACHE STRING "GPU architectures that kernels are compiled for")
set(SHARDPROOF_HAS_CUDA OFF)

if(NOT SHARDPROOF_CUDA)
  message(STATUS "CUDA: not asked for; the host device only")
  return()
endif()
if(SHARDPROOF_SANITIZE)
  message(STATUS "CUDA: left out of sanitizer builds; the host device only")
  return()
endif()

find_program(SHARDPROOF_NVCC nvcc HINTS /usr/local/cuda/bin)
mark_as_advanced(SHARDPROOF_NVCC)
if(NOT SHARDPROOF_NVCC)
  message(STATUS "CUDA: no nvcc on PATH or in /usr/local/cuda/bin; the host device only")
  return()
endif()
if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${SHARDPROOF_NVCC})
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(STATUS "CUDA: ${SHARDPROOF_NVCC} does not compile; the host device only")
  return()
endif()

find_package(CUDAToolkit QUIET)
find_path(SHARDPROOF_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(SHARDPROOF_NCCL nccl HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_DIR}/../lib)
mark_as_advanced(SHARDPROOF_NCCL_INCLUDE SHARDPROOF_NCCL)
foreach(part CUDA_CUDART CUDA_cublas_LIBRARY SHARDPROOF_NCCL SHARDPROOF_NCCL_INCLUDE)
  if(NOT ${part})
    message(STATUS "CUDA: nvcc is here, ${part} is not; the host device only")
    return()
  endif()
endforeach()

enable_language(CUDA)
set(SHARDPROOF_HAS_CUDA ON)
message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${SHARDPROOF_CUDA_ARCHITECTURES}, ${SHARDPROOF_NCCL}")

target_sources(shardproof_device PRIVATE engine/builtin_cuda_device.cu)
target_compile_definitions(shardproof_device PUBLIC SHARDPROOF_HAS_CUDA)
target_include_directories(shardproof_device SYSTEM PRIVATE ${SHARDPROOF_NCCL_INCLUDE})
# Without contraction, as on the host: a slot program's operations are rounded one by one.
target_compile_options(shardproof_device PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings -Xcompiler=-Wall,-Wextra --fmad=false>)
set_target_properties(shardproof_device PROPERTIES
  CUDA_ARCHITECTURES "${SHARDPROOF_CUDA_ARCHITECTURES}"
  CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF CUDA_RUNTIME_LIBRARY Shared)
target_link_libraries(shardproof_device PRIVATE
  ${CUDA_CUDART} ${CUDA_cublas_LIBRARY} ${SHARDPROOF_NCCL})
