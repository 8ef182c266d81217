# FASA_CUDA=ON: enables the CUDA language, chooses the architectures that this nvcc supports, and
# defines fasa_cuda, which every target that includes CUDA headers links.
find_program(CMAKE_CUDA_COMPILER nvcc PATHS /usr/local/cuda/bin)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "FASA_CUDA=ON, but there is no nvcc in PATH or /usr/local/cuda/bin. Install "
                      "the CUDA toolkit, 12.4 or newer, or use the presets release, debug, asan "
                      "or tsan, which build everything but the CUDA device.")
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known)
  # PTX runs on the same and newer GPUs. The PTX of 90 is for 10.x, for which that of 120 is too
  # new.
  foreach(arch 75 80 86 89 90 120)
    if(known MATCHES "compute_${arch}\n")
      list(APPEND CMAKE_CUDA_ARCHITECTURES ${arch}-real)
      set(newest ${arch})
    endif()
  endforeach()
  list(APPEND CMAKE_CUDA_ARCHITECTURES 90-virtual ${newest}-virtual)
  list(REMOVE_DUPLICATES CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}" CACHE STRING "GPU architectures")
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25.1 knows no C++20 for nvcc
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.4)
  message(FATAL_ERROR "FASA_CUDA=ON needs CUDA 12.4 or newer; ${CMAKE_CUDA_COMPILER} is "
                      "${CMAKE_CUDA_COMPILER_VERSION}.")
endif()
set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_LAUNCHER})
find_package(CUDAToolkit REQUIRED)
add_library(fasa_cuda INTERFACE)
target_link_libraries(fasa_cuda INTERFACE CUDA::cudart_static)
# No contraction in device code either: fused operations are explicit. Plain structs of the host's
# headers are also used on the device, hence relaxed constexpr. Warning 554: BasicTensorView's
# conversion to itself, which its constraint excludes.
target_compile_options(fasa_cuda INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false --expt-relaxed-constexpr -Werror=all-warnings
                             -diag-suppress=554
                             -Xcompiler=-fPIC,-Wall,-Wextra,-Werror,-ffp-contract=off>)
