# `cmake --install build --prefix <anywhere>`: command, libraries, headers and a CMake package. The tree can be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS tilewright EXPORT tilewright LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET tilewright_cli)
  install(TARGETS tilewright_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET tilewright_llvm)
  install(TARGETS tilewright_llvm LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(DIRECTORY specs DESTINATION ${CMAKE_INSTALL_DATADIR}/tilewright FILES_MATCHING PATTERN "*.yaml" PATTERN "*.json"
        PATTERN data EXCLUDE)
# NVRTC, where `make` fetched it: the library looks there.
install(DIRECTORY ${PROJECT_BINARY_DIR}/cuda/lib DESTINATION ${CMAKE_INSTALL_LIBDIR}/cuda OPTIONAL)

# Installed headers lie below include/tilewright/, so that one -I is enough: their includes are rewritten to match.
set(public_headers codegen/emit.h codegen/error.h codegen/expression.h codegen/schedule.h codegen/shape_bucket.h codegen/spec.h codegen/target.h)
install(FILES ${public_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tilewright/codegen)
install(FILES runtime/include/tilewright/tilewright.h runtime/include/tilewright/tilewright.hpp
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tilewright)
install(CODE "set(headers \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/tilewright\")")
install(CODE [[
  file(GLOB installed ${headers}/*.hpp ${headers}/codegen/*.h)
  foreach(header ${installed})
    file(READ ${header} text)
    string(REPLACE "#include \"codegen/" "#include \"tilewright/codegen/" text "${text}")
    file(WRITE ${header} "${text}")
  endforeach()
]])

set(package_directory ${CMAKE_INSTALL_LIBDIR}/cmake/tilewright)
install(EXPORT tilewright NAMESPACE tilewright:: FILE tilewrightConfig.cmake DESTINATION ${package_directory})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tilewrightConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tilewrightConfigVersion.cmake DESTINATION ${package_directory})
