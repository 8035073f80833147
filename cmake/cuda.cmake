# The CUDA module: one shared object with all device code and the CUDA runtime inside it. libalea
# opens it at run time (src/ops/cuda_module.c) and links nothing of it, so the same libalea serves
# machines with and without a GPU.

option(ALEA_CUDA "build libalea-cuda.so, which needs nvcc" OFF)
set(ALEA_CUDA_ARCHITECTURES "80;86;89;90;100;120" CACHE STRING
    "compute capabilities to build for; one is enough for development")
if(NOT ALEA_CUDA)
    return()
endif()

find_program(ALEA_NVCC nvcc
    HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin ${CMAKE_SOURCE_DIR}/.deps/cuda/bin)
if(NOT ALEA_NVCC)
    message(WARNING "no nvcc, so no CUDA module: `tools/setup test` fetches one")
    return()
endif()

# Machine code for each, and for later devices what the driver can compile from the newest. -fmad
# would fuse what the project's arithmetic keeps apart (docs/numerics.md).
set(cuda_flags -std=c++17 -O3 -fmad=false -ccbin ${CMAKE_CXX_COMPILER}
    -Xcompiler=-fPIC,-fvisibility=hidden,-ffp-contract=off,-Wall,-Wextra,-Wno-unknown-pragmas
    -I${CMAKE_SOURCE_DIR}/include -I${CMAKE_SOURCE_DIR}/src)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    list(REMOVE_ITEM cuda_flags -ccbin ${CMAKE_CXX_COMPILER})
endif()
if(ALEA_WERROR)
    list(APPEND cuda_flags -Werror=all-warnings)
endif()
foreach(architecture ${ALEA_CUDA_ARCHITECTURES})
    list(APPEND cuda_flags -gencode=arch=compute_${architecture},code=sm_${architecture})
endforeach()
list(GET ALEA_CUDA_ARCHITECTURES -1 architecture)
list(APPEND cuda_flags -gencode=arch=compute_${architecture},code=compute_${architecture})

set(cuda_objects)
foreach(unit chains choose lab logprobs masks module probs select)
    set(source ${CMAKE_SOURCE_DIR}/src/kernel/cuda/${unit}.cu)
    set(object ${CMAKE_BINARY_DIR}/cuda/${unit}.o)
    add_custom_command(OUTPUT ${object}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/cuda
        COMMAND ${ALEA_NVCC} ${cuda_flags} -MD -MF ${object}.d -c ${source} -o ${object}
        DEPENDS ${source} DEPFILE ${object}.d
        COMMENT "Building CUDA object ${unit}.o" VERBATIM)
    list(APPEND cuda_objects ${object})
endforeach()
set(cuda_module ${CMAKE_BINARY_DIR}/libalea-cuda.so)
add_custom_command(OUTPUT ${cuda_module}
    COMMAND ${ALEA_NVCC} -shared -cudart static -Xlinker=--exclude-libs,ALL
            -Xlinker=-z,defs ${cuda_objects} -o ${cuda_module}
    DEPENDS ${cuda_objects} COMMENT "Linking CUDA module libalea-cuda.so" VERBATIM)
add_custom_target(alea_cuda ALL DEPENDS ${cuda_module})
