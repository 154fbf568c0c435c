# cmake --install: programs, libraries, jobs, headers under include/ddprun/ and the CMake package.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(parts GLOBAL PROPERTY DDPRUN_PARTS)
get_property(programs GLOBAL PROPERTY DDPRUN_PROGRAMS)
get_property(folders GLOBAL PROPERTY DDPRUN_HEADER_FOLDERS)
get_property(root_header_folders GLOBAL PROPERTY DDPRUN_ROOT_HEADER_FOLDERS)

install(TARGETS ${parts} ddprun_asio ddprun_fmt EXPORT ddprun ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(programs)
  install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs DESTINATION ${CMAKE_INSTALL_DATADIR}/ddprun COMPONENT programs)
foreach(folder IN LISTS folders)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder}/ DESTINATION include/ddprun/${folder} FILES_MATCHING PATTERN "*.h")
endforeach()
foreach(folder IN LISTS root_header_folders)
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.h)
  install(FILES ${headers} DESTINATION include/ddprun/${folder})
endforeach()
install(EXPORT ddprun NAMESPACE ddprun:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ddprun FILE ddprun-targets.cmake)
configure_package_config_file(scripts/cmake/ddprun-config.cmake.in ddprun-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ddprun)
write_basic_package_version_file(ddprun-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ddprun-config.cmake ${PROJECT_BINARY_DIR}/ddprun-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ddprun)
