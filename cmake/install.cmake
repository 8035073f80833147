# Installed files: the library, its headers, pkg-config file and CMake package, and the program.

include(CMakePackageConfigHelpers)

set(alea_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/alea)
set_target_properties(alea_shared PROPERTIES EXPORT_NAME alea)

install(TARGETS alea_shared alea_static EXPORT aleaTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/alea DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT aleaTargets NAMESPACE alea:: DESTINATION ${alea_package_dir})

configure_package_config_file(packaging/aleaConfig.cmake.in aleaConfig.cmake
                              INSTALL_DESTINATION ${alea_package_dir})
# Before 1.0 a minor version may break the interface, as semantic versions allow.
write_basic_package_version_file(aleaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/aleaConfig.cmake ${CMAKE_BINARY_DIR}/aleaConfigVersion.cmake
        DESTINATION ${alea_package_dir})

file(RELATIVE_PATH alea_pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(packaging/alea.pc.in alea.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/alea.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(FILES LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(TARGET alea)
    install(TARGETS alea RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    # The program writes its own manual, from the table that it parses options with.
    set(alea_manual ${CMAKE_BINARY_DIR}/share)
    add_custom_command(OUTPUT ${alea_manual}/man/man1/alea.1
        COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:alea> -DINTO=${alea_manual}
                -P ${CMAKE_SOURCE_DIR}/cmake/manual.cmake
        DEPENDS alea ${CMAKE_SOURCE_DIR}/cmake/manual.cmake VERBATIM)
    add_custom_target(alea_manual ALL DEPENDS ${alea_manual}/man/man1/alea.1)
    install(DIRECTORY ${alea_manual}/ DESTINATION ${CMAKE_INSTALL_DATAROOTDIR})
endif()
if(TARGET alea)
    # At install time, for --prefix may be given then.
    install(CODE "set(CMAKE_INSTALL_FULL_BINDIR \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
        configure_file(\"${CMAKE_SOURCE_DIR}/packaging/alea.service.in\"
                       \"${CMAKE_BINARY_DIR}/alea.service\" @ONLY)")
    install(FILES ${CMAKE_BINARY_DIR}/alea.service DESTINATION lib/systemd/system)
endif()
if(TARGET alea_cuda)
    install(PROGRAMS ${CMAKE_BINARY_DIR}/libalea-cuda.so DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
