# How every file of the project is compiled, and the two words that the folders use:
# alea_layer(name files…) and alea_test(name files… [LIBS …]).

add_library(alea_flags INTERFACE)
target_include_directories(alea_flags INTERFACE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
target_compile_definitions(alea_flags INTERFACE _GNU_SOURCE)
# -ffp-contract=off: every fused multiply-add is written as one, so bits do not depend on the
# compiler (docs/numerics.md). Nothing here may ever turn on fast-math.
target_compile_options(alea_flags INTERFACE
    -ffp-contract=off -fno-math-errno
    -ffile-prefix-map=${CMAKE_SOURCE_DIR}/= -ffile-prefix-map=${ALEA_DEPS}/=.deps/
    $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes
    -Wmissing-prototypes -Wvla -Wundef>)
if(ALEA_WERROR)
    target_compile_options(alea_flags INTERFACE -Werror)
endif()
if(ALEA_SANITIZE)
    target_compile_options(alea_flags INTERFACE
        -fsanitize=${ALEA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(alea_flags INTERFACE -fsanitize=${ALEA_SANITIZE})
endif()

find_package(Threads REQUIRED)

# Every layer's objects in one archive, of which a test takes what it needs.
add_library(alea_layers STATIC)
target_link_libraries(alea_layers PUBLIC alea_flags Threads::Threads ${CMAKE_DL_LIBS} m)
set_target_properties(alea_layers PROPERTIES LINKER_LANGUAGE C)

# One folder of src/ as an object library; the library and the program are made of these.
function(alea_layer name)
    add_library(alea_${name} OBJECT ${ARGN})
    target_link_libraries(alea_${name} PUBLIC alea_flags)
    target_sources(alea_layers PRIVATE $<TARGET_OBJECTS:alea_${name}>)
endfunction()

# A cmocka program registered with ctest under its own name.
function(alea_test name)
    cmake_parse_arguments(arg "" "" "LIBS" ${ARGN})
    add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
    target_link_libraries(${name} PRIVATE alea_test_support ${arg_LIBS} alea_layers cmocka)
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
    add_test(NAME ${name} COMMAND ${name})
endfunction()
