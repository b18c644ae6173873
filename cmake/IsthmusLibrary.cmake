# The installed library: isthmus_library builds it, `cmake --install` puts headers, libraries, the CMake package and the
# pkg-config file under the prefix.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(isthmus_shared SHARED ${PROJECT_SOURCE_DIR}/cmake/library.c)
target_link_libraries(isthmus_shared PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,isthmus_capi>)
target_include_directories(isthmus_shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set(map ${PROJECT_SOURCE_DIR}/cmake/isthmus.map)
target_link_options(isthmus_shared PRIVATE -Wl,--version-script=${map})
if(NOT ISTHMUS_SANITIZE)
  target_link_options(isthmus_shared PRIVATE -Wl,-z,defs -Wl,--as-needed)
endif()
# While the major version is 0, each minor version may change the ABI.
set_target_properties(isthmus_shared PROPERTIES OUTPUT_NAME isthmus EXPORT_NAME isthmus LINKER_LANGUAGE CXX
  LINK_DEPENDS ${map} VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

# One archive of all layers below the C API.
set(archive ${CMAKE_BINARY_DIR}/lib/libisthmus.a)
set(layers base os threads tensor kernels ops format text kv model engine capi)
set(script "CREATE ${archive}\n")
set(targets "")
foreach(layer ${layers})
  get_target_property(type isthmus_${layer} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    string(APPEND script "ADDLIB $<TARGET_FILE:isthmus_${layer}>\n")
    list(APPEND targets isthmus_${layer})
  endif()
endforeach()
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/archive.mri CONTENT "${script}SAVE\nEND\n")
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
add_custom_command(OUTPUT ${archive}
  COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
  COMMAND ${CMAKE_AR} -M < ${CMAKE_CURRENT_BINARY_DIR}/archive.mri
  DEPENDS ${targets} ${CMAKE_CURRENT_BINARY_DIR}/archive.mri COMMENT "Archiving all layers in libisthmus.a")
add_custom_target(isthmus_archive ALL DEPENDS ${archive})
add_custom_target(isthmus_library DEPENDS isthmus_shared isthmus_archive)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/isthmus)
file(RELATIVE_PATH prefix_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/isthmus.pc.in isthmus.pc @ONLY)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/isthmus-config.cmake.in isthmus-config.cmake
  INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(isthmus-config-version.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS isthmus_shared EXPORT isthmus-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT isthmus-targets NAMESPACE isthmus:: DESTINATION ${package_dir})
install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/isthmus DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/isthmus-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/isthmus-config-version.cmake DESTINATION ${package_dir})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/isthmus.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
