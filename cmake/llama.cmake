# libllama as two targets: alea_llama (headers and the facts of its build) for the folder that
# calls it, and alea_llama_libraries for whoever links that folder.
#
# Built by tools/build-llama into ALEA_DEPS/llama; else a system libllama of the same version, if
# it carries Alea's edits to ggml's CPU kernels. Any other library would give other numbers.

set(ALEA_LLAMA_VERSION 0.5.0)
add_library(alea_llama INTERFACE)
add_library(alea_llama_libraries INTERFACE)

set(llama_root ${ALEA_DEPS}/llama)
if(EXISTS ${llama_root}/BUILD)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${llama_root}/BUILD)
    file(STRINGS ${llama_root}/BUILD llama_lines)
    foreach(line ${llama_lines})
        string(REGEX MATCH "^([a-z]+) (.*)$" found "${line}")
        if(found)
            set(llama_${CMAKE_MATCH_1} "${CMAKE_MATCH_2}")
        endif()
    endforeach()
    if(NOT llama_version STREQUAL ALEA_LLAMA_VERSION)
        message(FATAL_ERROR "libllama ${llama_version} is in ${llama_root}, ${ALEA_LLAMA_VERSION} "
                            "is needed: run tools/build-llama")
    endif()
    set(llama_build "${llama_version} ${llama_variant} ${llama_key}")
    target_include_directories(alea_llama SYSTEM INTERFACE ${llama_root}/include)
    target_link_libraries(alea_llama_libraries INTERFACE
        ${llama_root}/lib/libllama.a ${llama_root}/lib/libggml.a
        ${llama_root}/lib/libggml-cpu.a ${llama_root}/lib/libggml-base.a
        stdc++ Threads::Threads ${CMAKE_DL_LIBS} m)
else()
    find_package(PkgConfig QUIET)
    if(PKG_CONFIG_FOUND)
        pkg_check_modules(llama_system QUIET llama=${ALEA_LLAMA_VERSION})
    endif()
    if(llama_system_FOUND)
        include(CheckSymbolExists)
        set(CMAKE_REQUIRED_INCLUDES ${llama_system_INCLUDE_DIRS})
        set(CMAKE_REQUIRED_LIBRARIES ${llama_system_LINK_LIBRARIES} ggml-cpu ggml-base)
        check_symbol_exists(ggml_cpu_alea_set_invariant "stdbool.h;ggml-cpu.h" llama_has_edits)
    endif()
    if(NOT llama_has_edits)
        message(FATAL_ERROR "no libllama ${ALEA_LLAMA_VERSION} with Alea's edits: run `make build`, "
                            "which builds it, or configure with -DALEA_PROGRAM=OFF")
    endif()
    set(llama_build "${ALEA_LLAMA_VERSION} system")
    set(llama_features "")
    target_include_directories(alea_llama SYSTEM INTERFACE ${llama_system_INCLUDE_DIRS})
    target_link_libraries(alea_llama_libraries INTERFACE
        ${llama_system_LINK_LIBRARIES} ggml-cpu ggml-base)
endif()

target_compile_definitions(alea_llama INTERFACE
    ALEA_LLAMA_VERSION="${ALEA_LLAMA_VERSION}" ALEA_LLAMA_BUILD="${llama_build}"
    ALEA_LLAMA_FEATURES="${llama_features}")
