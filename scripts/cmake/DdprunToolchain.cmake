# Language level, warnings, sanitizers, and the tools that make builds quick where they are present.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

set(CMAKE_CUDA_FLAGS_RELEASE "-O3")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# Nobody puts functions of another library in the place of ours: so they can be inlined, position-independent or not.
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -fno-semantic-interposition")

# ddprun_collect_less(TARGET): GCC collects garbage only above half a GiB. Otherwise that takes a tenth of its time where
# a source includes much.
function(ddprun_collect_less target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=524288>)  # KiB
  endif()
endfunction()

# ddprun_compile_quickly(TARGET): for a part that waits for processes and sockets. It runs no slower with -O1, and takes
# 70 % of the compiler's time.
function(ddprun_compile_quickly target)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${target} PRIVATE -O1)
  endif()
  set_target_properties(${target} PROPERTIES DDPRUN_QUICK ALL)
  ddprun_collect_less(${target})
endfunction()

# The sanitizer builds: quick to compile, quick enough to run, lines in the reports.
set(CMAKE_CXX_FLAGS_SANITIZE "-O1 -g1 -fno-omit-frame-pointer")

find_program(DDPRUN_CCACHE ccache)
if(DDPRUN_CCACHE)
  # Without this sloppiness ccache passes over every file that has a precompiled header. Paths are relative, so that one
  # checkout finds what another has compiled; debug information then names the other's build folder.
  set(cache env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=true)
  set(sloppiness CCACHE_SLOPPINESS=pch_defines,time_macros)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${cache} ${sloppiness} ${DDPRUN_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  set(DDPRUN_PRECOMPILE_LAUNCHER
    ${cache} CCACHE_DEPEND=true ${sloppiness},include_file_mtime,include_file_ctime ${DDPRUN_CCACHE})
endif()

# ddprun_precompile(TARGET HEADER ...): precompiles the headers for the target, and for targets that reuse its file.
#
# A precompiled header holds a digest of each file with "#pragma once", comments included. So ccache looks for one by the
# files' digests alone ("depend mode"), never by the preprocessed text, which is equal where only a comment has changed.
# CMake writes the header just before it is compiled: without the further sloppiness ccache would not store the result.
function(ddprun_precompile target)
  target_precompile_headers(${target} PRIVATE ${ARGN})
  if(DDPRUN_CCACHE)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${DDPRUN_PRECOMPILE_LAUNCHER}")
  endif()
endfunction()

find_program(DDPRUN_MOLD mold)
if(DDPRUN_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_library(ddprun_warnings INTERFACE)
set(warnings -Wall -Wextra -Wpedantic -Wshadow $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor;-Woverloaded-virtual> -Wimplicit-fallthrough
  -Wno-missing-field-initializers)  # designated initializers leave out what has a default
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12's flow analysis reports false positives inside libstdc++ and fmt once they are inlined.
  list(APPEND warnings -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds -Wno-restrict)
endif()
if(DDPRUN_UNITY)
  # A local name may be that of something in another source; and GCC takes a source that is included for a header, which
  # should have no members of types of an unnamed namespace.
  list(APPEND warnings -Wno-shadow $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endif()
target_compile_options(ddprun_warnings INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:${warnings}>)  # nvcc has others

if(DDPRUN_SANITIZE)
  add_compile_options(-fsanitize=${DDPRUN_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${DDPRUN_SANITIZE})
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND (DDPRUN_SANITIZE OR CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13))
  # Where GCC inlines only one of a coroutine frame's operator new and delete, it takes them for different allocators'.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-mismatched-new-delete>)
endif()
if(DDPRUN_SANITIZE MATCHES "undefined")
  # Its check of vtables opens a pipe to probe memory, and takes a process without descriptors for one without objects.
  add_compile_options(-fno-sanitize=vptr)
  add_link_options(-fno-sanitize=vptr)
endif()
if(DDPRUN_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Wno-tsan)
endif()

if(DDPRUN_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "DDPRUN_FUZZ needs clang: configure with cmake --preset fuzz")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)  # coverage of the libraries, too
endif()
