# Kernels for GPUs: nvcc compiles cephalo/kernels/cuda, the host's compiler everything else. The
# runtime is linked in and looks for a driver at run time. A command of our own rather than CMake's
# language: nvcc from PyPI lies where CMake does not look, and what ptxas says is kept for
# tools/check_cuda.
file(GLOB venv_cuda ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/cu13)
find_program(CEPHALO_NVCC nvcc REQUIRED HINTS ENV CUDA_HOME PATHS ${venv_cuda} /usr/local/cuda
             PATH_SUFFIXES bin DOC "CUDA's compiler, 13.0 or newer; tools/deps cuda installs one")
execute_process(COMMAND ${CEPHALO_NVCC} --version OUTPUT_VARIABLE nvcc_version)
string(REGEX MATCH "release ([0-9]+[.][0-9]+)" nvcc_release "${nvcc_version}")
if(CMAKE_MATCH_1 VERSION_LESS 13.0)
  message(FATAL_ERROR "${CEPHALO_NVCC} is of CUDA ${CMAKE_MATCH_1}; 13.0 or newer is needed")
endif()
file(REAL_PATH ${CEPHALO_NVCC} nvcc_path)
cmake_path(GET nvcc_path PARENT_PATH nvcc_folder)
cmake_path(GET nvcc_folder PARENT_PATH cuda_home)
find_path(CEPHALO_CUDA_INCLUDE cuda_runtime_api.h REQUIRED HINTS ${cuda_home}/include
          ${cuda_home}/targets/x86_64-linux/include)
find_library(CEPHALO_CUDA_RUNTIME libcudart_static.a REQUIRED HINTS ${cuda_home}/lib
             ${cuda_home}/lib64 ${cuda_home}/targets/x86_64-linux/lib)

set(cuda_flags -O3 -std=c++20 -I${PROJECT_SOURCE_DIR} -I${CEPHALO_CUDA_INCLUDE} -Xptxas -v
    -Xcompiler=-fPIC,-fvisibility=hidden -ccbin ${CMAKE_CXX_COMPILER} --expt-relaxed-constexpr
    -Werror all-warnings)
if(CEPHALO_CUDA_RACECHECK)
  list(APPEND cuda_flags -DCEPHALO_RACECHECK)
endif()
# Machine code for the GPUs that we know, and code that the driver finishes for later ones.
set(cuda_every_gpu -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=sm_90
    -gencode=arch=compute_90,code=compute_90)
set(cuda_hopper -gencode=arch=compute_90a,code=sm_90a)

# cephalo_cuda_object(NAME SOURCE FLAGS...): adds to cuda_objects; beside it, what ptxas said of it.
function(cephalo_cuda_object name source)
  set(object ${PROJECT_BINARY_DIR}/cuda/${name}.o)
  cmake_path(GET object PARENT_PATH folder)
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(
    OUTPUT ${object}
    COMMAND sh -c "\"$@\" 2> ${object}.ptxas || { cat ${object}.ptxas >&2; exit 1; }" nvcc
            ${CEPHALO_NVCC} ${cuda_flags} ${ARGN} -MD -MF ${object}.d -MT ${object}
            -c ${PROJECT_SOURCE_DIR}/${source} -o ${object}
    DEPENDS ${PROJECT_SOURCE_DIR}/${source} DEPFILE ${object}.d
    COMMENT "nvcc ${name}" VERBATIM)
  set(cuda_objects ${cuda_objects} ${object} PARENT_SCOPE)
endfunction()
macro(cephalo_cuda_sources gpus)
  foreach(source ${ARGN})
    cephalo_cuda_object(${source} ${source} ${${gpus}})
  endforeach()
endmacro()

cephalo_cuda_sources(cuda_every_gpu
  cephalo/kernels/cuda/copy.cu
  cephalo/kernels/cuda/device_parts.cu
  cephalo/kernels/cuda/documents.cu
  cephalo/kernels/cuda/simple.cu
  cephalo/kernels/cuda/simple_backward.cu)
cephalo_cuda_sources(cuda_hopper
  cephalo/kernels/cuda/backward.cu
  cephalo/kernels/cuda/backward_wide.cu
  cephalo/kernels/cuda/forward.cu
  cephalo/kernels/cuda/forward_wide.cu)
# As instances.h lists them; kernels that look at different things compile beside each other.
foreach(looks_at nothing positions alibi bias softcap dropout pairs)
  foreach(pass forward backward)
    set(instances cephalo/kernels/cuda/${pass}_instances)
    cephalo_cuda_object(${instances}.${looks_at}.cu ${instances}.cu ${cuda_hopper}
                        -DCEPHALO_LOOKS_AT=${looks_at})
  endforeach()
endforeach()
add_custom_target(cephalo_cuda_kernels DEPENDS ${cuda_objects})
set_source_files_properties(${cuda_objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
set(cuda_host_sources
  cephalo/core/cuda_device.cc
  cephalo/attention/cuda/device_parts.cc
  cephalo/attention/cuda/device_problem.cc
  cephalo/attention/cuda/document_spans.cc
  cephalo/attention/cuda/engine.cc
  cephalo/attention/cuda/hopper_backward.cc
  cephalo/attention/cuda/hopper_forward.cc
  cephalo/attention/cuda/packed.cc
  cephalo/attention/cuda/simple_engine.cc
  cephalo/attention/cuda/stream_block.cc
  cephalo/attention/cuda/tensor_map.cc
  cephalo/kernels/cuda/launch_line.cc)
target_sources(cephalo_objects PRIVATE ${cuda_host_sources})
set_source_files_properties(${cuda_host_sources} PROPERTIES
                            COMPILE_OPTIONS "-isystem;${CEPHALO_CUDA_INCLUDE}")
# Nobody else knows how the library was built.
set_source_files_properties(cephalo/core/device.cc cephalo/attention/engine/engine.cc PROPERTIES
                            COMPILE_DEFINITIONS CEPHALO_CUDA)
set(cuda_libraries $<BUILD_INTERFACE:${CEPHALO_CUDA_RUNTIME}> $<BUILD_INTERFACE:${CMAKE_DL_LIBS}>
    $<BUILD_INTERFACE:rt>)
