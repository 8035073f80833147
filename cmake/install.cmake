# Installed files: the library, its headers, pkg-config file and CMake package, and the program.
