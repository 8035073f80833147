# fuzz_api: the request layer and the JSON below it are compiled again, the rest is linked.
file(GLOB fuzz_api_sources ${CMAKE_SOURCE_DIR}/src/api/*.c ${CMAKE_SOURCE_DIR}/src/json/*.c)
add_executable(fuzz_api fuzz_api.c ${fuzz_api_sources} ${ALEA_DEPS}/yyjson/yyjson.c)
target_link_libraries(fuzz_api PRIVATE alea_flags alea_layers m)
target_include_directories(fuzz_api SYSTEM PRIVATE ${ALEA_DEPS}/yyjson)
target_compile_definitions(fuzz_api PRIVATE
    YYJSON_DISABLE_WRITER=1 YYJSON_DISABLE_UTILS=1 YYJSON_DISABLE_NON_STANDARD=1)
target_compile_options(fuzz_api PRIVATE ${fuzz_flags})
target_link_options(fuzz_api PRIVATE ${fuzz_flags})
