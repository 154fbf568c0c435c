# The headers that most sources include are precompiled once, which saves a third of the compiler's time. A build with
# it does not notice a source that lacks an include, so CI's build on Debian 13 does without.
if(DDPRUN_PRECOMPILED AND NOT DDPRUN_FUZZ)
  set(CMAKE_PCH_WARN_INVALID OFF)  # single sources with other options read the headers themselves
  add_library(ddprun_precompiled OBJECT ${PROJECT_SOURCE_DIR}/scripts/cmake/precompiled.cc)
  target_link_libraries(ddprun_precompiled PRIVATE ddprun::fmt ddprun_warnings)
  ddprun_precompile(ddprun_precompiled
    <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <condition_variable> <cstdint> <cstring> <deque> <filesystem>
    <fstream> <functional> <map> <memory> <mutex> <numeric> <optional> <ranges> <set> <span> <sstream> <string>
    <string_view> <thread> <unordered_map> <utility> <variant> <vector> <fmt/format.h> <fmt/ranges.h>)
endif()

# ddprun_library(NAME SOURCES ... PUBLIC ... PRIVATE ... [ROOT_HEADERS_PUBLIC]): one part of the project as the static
# library ddprun::NAME.
#
# Sources include headers by their path in the tree; the layer table of docs/architecture.md says which part may include
# which, and a test checks it. PUBLIC are the parts that its headers need, PRIVATE those of its sources.
# All headers are installed; with ROOT_HEADERS_PUBLIC only those in the part's own folder, not those in its sub-folders.
# APART are folders whose sources are compiled one by one in a unity build too: their speed depends on what is inlined.
# QUICK are folders whose code waits for sockets, files and other code: a unity build compiles them with -O1 (see
# ddprun_compile_quickly).
function(ddprun_library name)
  cmake_parse_arguments(ARG "ROOT_HEADERS_PUBLIC" "" "SOURCES;PUBLIC;PRIVATE;APART;QUICK" ${ARGN})
  set(target ddprun_${name})
  add_library(${target} STATIC ${ARG_SOURCES})
  add_library(ddprun::${name} ALIAS ${target})
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})

  file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)

  target_link_libraries(${target} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE} $<BUILD_INTERFACE:ddprun_warnings>)
  if(TARGET ddprun_precompiled)
    target_precompile_headers(${target} REUSE_FROM ddprun_precompiled)
  endif()
  set_target_properties(${target} PROPERTIES DDPRUN_APART "${ARG_APART}" DDPRUN_QUICK "${ARG_QUICK}")
  set_property(GLOBAL APPEND PROPERTY DDPRUN_PARTS ${target})
  if(ARG_ROOT_HEADERS_PUBLIC)
    set_property(GLOBAL APPEND PROPERTY DDPRUN_ROOT_HEADER_FOLDERS ${path})
  else()
    set_property(GLOBAL APPEND PROPERTY DDPRUN_HEADER_FOLDERS ${path})
  endif()
  if(DDPRUN_BUILD_TESTS)
    ddprun_header_check(${target} ${path} ${ARG_PUBLIC} ${ARG_PRIVATE})
  endif()
endfunction()

# A unity build: up to 24 sources of a folder, or of all QUICK folders of a part, are compiled as one, which reads their
# headers once. Sources with options of their own stay apart.
function(ddprun_unite_sources)
  get_property(targets GLOBAL PROPERTY DDPRUN_PARTS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "INTERFACE_LIBRARY")
      continue()
    endif()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    ddprun_collect_less(${target})
    get_target_property(base ${target} SOURCE_DIR)
    get_target_property(sources ${target} SOURCES)
    get_target_property(binary ${target} BINARY_DIR)
    get_target_property(apart ${target} DDPRUN_APART)
    get_target_property(quick ${target} DDPRUN_QUICK)
    list(FILTER sources INCLUDE REGEX "\\.cc$")
    foreach(source IN LISTS sources)
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${base})
      cmake_path(GET source PARENT_PATH folder)
      cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${base})
      if(folder IN_LIST apart)
        continue()
      endif()
      if(quick STREQUAL "ALL" OR folder IN_LIST quick)
        set(name "${target}_quick")
      else()
        string(MAKE_C_IDENTIFIER "${target}_${folder}" name)
      endif()
      math(EXPR group "${count_of_${name}} + 0")
      math(EXPR count_of_${name} "${group} + 1")
      math(EXPR group "${group} / 24")
      set_property(SOURCE ${source} TARGET_DIRECTORY ${target} PROPERTY UNITY_GROUP ${name}_${group})
      if(folder IN_LIST quick AND CMAKE_BUILD_TYPE STREQUAL "Release")
        # CMake makes this file; single sources with options of their own it would not unite.
        set(united ${binary}/CMakeFiles/${target}.dir/Unity/unity_${name}_${group}_cxx.cxx)
        set_property(SOURCE ${united} TARGET_DIRECTORY ${target} PROPERTY COMPILE_OPTIONS -O1)
      endif()
    endforeach()
  endforeach()
endfunction()

# Whether the header's own source includes it first, and so compiles it alone.
function(ddprun_source_checks header path result)
  cmake_path(REPLACE_EXTENSION header cc OUTPUT_VARIABLE source)
  set(${result} FALSE PARENT_SCOPE)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    file(STRINGS ${source} first REGEX "^#include" LIMIT_COUNT 1)
    if(first STREQUAL "#include \"${path}/${header}\"")
      set(${result} TRUE PARENT_SCOPE)
    endif()
  endif()
endfunction()

# The target <target>_headers compiles each header of the part that no source compiles alone; the tests build it.
function(ddprun_header_check target path)
  file(GLOB_RECURSE headers RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS *.h)
  # Their includes are the CUDA module's and the emulator's.
  list(FILTER headers EXCLUDE REGEX "cuda/module/|emulator/")
  set(sources)
  foreach(header IN LISTS headers)
    ddprun_source_checks(${header} ${path} is_checked)
    if(is_checked)
      continue()
    endif()
    set(source ${PROJECT_BINARY_DIR}/header_checks/${path}/${header}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${path}/${header}\"\n")
    list(APPEND sources ${source})
  endforeach()
  if(NOT sources)
    return()
  endif()
  add_library(${target}_headers OBJECT EXCLUDE_FROM_ALL ${sources})
  target_link_libraries(${target}_headers PRIVATE ${target} ${ARGN} ddprun_warnings)
  target_include_directories(${target}_headers SYSTEM PRIVATE
    $<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>)
  target_compile_options(${target}_headers PRIVATE -O0)
  set_property(GLOBAL APPEND PROPERTY DDPRUN_HEADER_CHECKS ${target}_headers)
endfunction()

# ddprun_program(NAME SOURCES ... LIBS ... [INTERNAL] [SELF_CONTAINED]): a program in build/bin. INTERNAL ones are not
# installed; SELF_CONTAINED ones, which link no shared C++ library, have the C++ library inside, and their symbols bound at
# the start: a process that forks many others would have each of them bind its own.
function(ddprun_program name)
  cmake_parse_arguments(ARG "INTERNAL;SELF_CONTAINED" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} ddprun_warnings)
  if(ARG_SELF_CONTAINED AND NOT DDPRUN_SANITIZE)
    target_link_options(${name} PRIVATE -static-libstdc++ -static-libgcc -Wl,--gc-sections,-z,now)
    set_target_properties(${name} PROPERTIES DDPRUN_SELF_CONTAINED ON)
  endif()
  if(NOT ARG_INTERNAL)
    set_property(GLOBAL APPEND PROPERTY DDPRUN_PROGRAMS ${name})
  endif()
endfunction()

# Programs that use an installed ddprun include headers as "ddprun/...": so do those of the tree that are written as
# theirs, and the Python package of a built tree.
set(DDPRUN_AS_INSTALLED ${PROJECT_BINARY_DIR}/as_installed)
file(MAKE_DIRECTORY ${DDPRUN_AS_INSTALLED})
file(CREATE_LINK ${PROJECT_SOURCE_DIR} ${DDPRUN_AS_INSTALLED}/ddprun SYMBOLIC)

# ddprun_user_program(TARGET): the target is such a program.
function(ddprun_user_program target)
  target_include_directories(${target} PRIVATE ${DDPRUN_AS_INSTALLED})
endfunction()
