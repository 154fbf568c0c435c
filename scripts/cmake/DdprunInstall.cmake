# cmake --install: programs, libraries, jobs, headers under include/ddprun/ and the CMake package.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Installs files under include/ddprun. The tree's sources include each other by their path in the tree, installed ones by
# "ddprun/" and that path.
function(ddprun_install_headers)
  foreach(header IN LISTS ARGN)
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${header})
    set(installed ${PROJECT_BINARY_DIR}/installed_headers/${path})
    cmake_path(GET path PARENT_PATH folder)
    install(CODE "
      file(READ \"${header}\" text)
      string(REGEX REPLACE \"#include \\\"(common|rendezvous|launcher|worker)/\" \"#include \\\"ddprun/\\\\1/\" text \"\${text}\")
      file(WRITE \"${installed}\" \"\${text}\")")
    install(FILES ${installed} DESTINATION include/ddprun/${folder})
  endforeach()
endfunction()

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
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.h)
  ddprun_install_headers(${headers})
endforeach()
foreach(folder IN LISTS root_header_folders)
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.h)
  ddprun_install_headers(${headers})
endforeach()
ddprun_install_headers(${PROJECT_SOURCE_DIR}/worker/capi/ddprun.h)
# The project that uses ddprun::torch compiles its sources: see worker/libtorch/ddprun-torch.cmake.
file(GLOB libtorch CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/worker/libtorch/*.h ${PROJECT_SOURCE_DIR}/worker/libtorch/*.cc)
ddprun_install_headers(${libtorch})
install(EXPORT ddprun NAMESPACE ddprun:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ddprun FILE ddprun-targets.cmake)
configure_package_config_file(scripts/cmake/ddprun-config.cmake.in ddprun-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ddprun)
write_basic_package_version_file(ddprun-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ddprun-config.cmake ${PROJECT_BINARY_DIR}/ddprun-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ddprun)
