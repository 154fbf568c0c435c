# Every library from outside, found once. What is optional is reported in the configure summary.
find_package(Threads REQUIRED)
set(Boost_USE_STATIC_LIBS ON)
find_package(Boost 1.81 REQUIRED COMPONENTS filesystem json)
find_package(CLI11 REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(Gloo REQUIRED)
find_package(OpenSSL 3.0 REQUIRED)
include(DdprunStaticTls)
if(DDPRUN_TENSORS)
  find_package(ZLIB REQUIRED)
  find_package(dnnl REQUIRED)
  find_package(ICU REQUIRED COMPONENTS uc)
  # Optional: folders of images.
  find_package(PNG)
  find_package(JPEG)
  set(DDPRUN_READS_PICTURES OFF)
  if(PNG_FOUND AND JPEG_FOUND)
    set(DDPRUN_READS_PICTURES ON)
  endif()
  message(STATUS "PNG and JPEG files: ${DDPRUN_READS_PICTURES}")
endif()
if(DDPRUN_BUILD_TESTS)
  find_package(Catch2 REQUIRED)
endif()

# The NCCL back end is compiled with the headers of the CUDA runtime and of NCCL, from a toolkit or from NVIDIA's Python
# wheels, or else with those of the emulator; it finds the functions in the CUDA module at run time.
set(cuda_places $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda)
find_path(DDPRUN_CUDA_INCLUDE cuda_runtime_api.h HINTS ${cuda_places} PATH_SUFFIXES include)
find_path(DDPRUN_NCCL_INCLUDE nccl.h HINTS $ENV{NCCL_HOME} ${cuda_places} PATH_SUFFIXES include)
if(DDPRUN_CUDA_INCLUDE AND DDPRUN_NCCL_INCLUDE)
  set(DDPRUN_DEVICE_INCLUDES ${DDPRUN_CUDA_INCLUDE} ${DDPRUN_NCCL_INCLUDE})
else()
  set(DDPRUN_DEVICE_INCLUDES ${PROJECT_SOURCE_DIR}/worker/cuda/emulator/include)
endif()

# The module for CUDA devices is compiled by nvcc, and links NVIDIA's libraries. Sets DDPRUN_HAS_CUDA. The sanitizers know
# nothing of nvcc.
set(DDPRUN_HAS_CUDA OFF)
if(DDPRUN_CUDA AND DDPRUN_TENSORS AND NOT DDPRUN_SANITIZE)
  find_library(DDPRUN_CUDA_LIBRARY NAMES cudart libcudart.so.13 libcudart.so.12 HINTS ${cuda_places} PATH_SUFFIXES lib64 lib)
  find_library(DDPRUN_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS $ENV{NCCL_HOME} ${cuda_places} PATH_SUFFIXES lib64 lib)
  find_program(DDPRUN_NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
  find_path(DDPRUN_CUBLASLT_INCLUDE cublasLt.h HINTS ${cuda_places} PATH_SUFFIXES include)
  find_library(DDPRUN_CUBLASLT_LIBRARY NAMES cublasLt libcublasLt.so.13 libcublasLt.so.12 HINTS ${cuda_places} PATH_SUFFIXES lib64 lib)
  find_path(DDPRUN_CUDNN_INCLUDE cudnn.h HINTS $ENV{CUDNN_HOME} ${cuda_places} PATH_SUFFIXES include)
  find_library(DDPRUN_CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS $ENV{CUDNN_HOME} ${cuda_places} PATH_SUFFIXES lib64 lib)
  if(DDPRUN_NVCC AND DDPRUN_CUDA_INCLUDE AND DDPRUN_CUDA_LIBRARY AND DDPRUN_CUBLASLT_INCLUDE AND DDPRUN_CUBLASLT_LIBRARY AND
     DDPRUN_CUDNN_INCLUDE AND DDPRUN_CUDNN_LIBRARY AND DDPRUN_NCCL_INCLUDE AND DDPRUN_NCCL_LIBRARY)
    set(CMAKE_CUDA_COMPILER ${DDPRUN_NVCC})
    set(CMAKE_CUDA_ARCHITECTURES ${DDPRUN_CUDA_ARCHITECTURES})
    enable_language(CUDA)
    foreach(kind STANDARD EXTENSION)  # CMake 3.25 does not know that nvcc has C++20
      set(CMAKE_CUDA20_${kind}_COMPILE_OPTION "-std=c++20")
    endforeach()
    set(DDPRUN_HAS_CUDA ON)
  elseif(NOT DDPRUN_CUDA STREQUAL AUTO)
    message(FATAL_ERROR "DDPRUN_CUDA=${DDPRUN_CUDA}: nvcc, the CUDA runtime, cuBLAS, cuDNN or NCCL is missing (CUDA_HOME, CUDNN_HOME and NCCL_HOME say where to look)")
  endif()
endif()
message(STATUS "CUDA module: ${DDPRUN_HAS_CUDA}")

# The MPI back end is built for each MPI found here. Sets DDPRUN_HAS_OPENMPI and DDPRUN_HAS_MPICH.
function(ddprun_find_mpi prefix library suffixes)
  find_path(DDPRUN_${prefix}_INCLUDE mpi.h
    HINTS $ENV{${prefix}_HOME}/include PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}
      /usr/lib64 /usr/include
    PATH_SUFFIXES ${suffixes} NO_DEFAULT_PATH)
  find_library(DDPRUN_${prefix}_LIBRARY ${library}
    HINTS $ENV{${prefix}_HOME}/lib PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} /usr/lib64
    PATH_SUFFIXES ${suffixes} openmpi/lib mpich/lib NO_DEFAULT_PATH)
  set(found OFF)
  if(DDPRUN_${prefix}_INCLUDE AND DDPRUN_${prefix}_LIBRARY)
    set(found ON)
  endif()
  set(DDPRUN_HAS_${prefix} ${found} PARENT_SCOPE)
endfunction()
set(DDPRUN_HAS_OPENMPI OFF)
set(DDPRUN_HAS_MPICH OFF)
if(DDPRUN_MPI)
  ddprun_find_mpi(OPENMPI mpi "openmpi/include;openmpi-x86_64")
  ddprun_find_mpi(MPICH mpich "mpich;mpich/include;mpich-x86_64")
endif()
message(STATUS "MPI back end: Open MPI ${DDPRUN_HAS_OPENMPI}, MPICH ${DDPRUN_HAS_MPICH}")

# Asio and Process v2 compiled once, not in every file that includes them.
add_library(ddprun_asio STATIC ${PROJECT_SOURCE_DIR}/scripts/cmake/asio.cc ${PROJECT_SOURCE_DIR}/scripts/cmake/process.cc)
target_compile_definitions(ddprun_asio PUBLIC
  BOOST_ASIO_SEPARATE_COMPILATION BOOST_PROCESS_V2_SEPARATE_COMPILATION BOOST_ASIO_NO_DEPRECATED)
target_link_libraries(ddprun_asio PUBLIC Boost::headers Boost::filesystem Threads::Threads)
ddprun_compile_quickly(ddprun_asio)
add_library(ddprun::asio ALIAS ddprun_asio)
set_target_properties(ddprun_asio PROPERTIES EXPORT_NAME asio)

# A small C++ program spends most of its start on the linking of shared C++ libraries, and ddprun starts often. So fmt
# and spdlog, which distributions have as shared libraries only, are compiled in; ddprun_program(... SELF_CONTAINED)
# does the same with the C++ library itself.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_library(ddprun_fmt STATIC ${PROJECT_SOURCE_DIR}/scripts/cmake/fmt.cc)
  target_compile_options(ddprun_fmt PRIVATE -O1 -fkeep-inline-functions -ffunction-sections)
  target_include_directories(ddprun_fmt SYSTEM INTERFACE
    $<BUILD_INTERFACE:$<TARGET_PROPERTY:fmt::fmt,INTERFACE_INCLUDE_DIRECTORIES>>)
else()  # has no way to keep functions that are not called yet
  add_library(ddprun_fmt INTERFACE)
  target_link_libraries(ddprun_fmt INTERFACE fmt::fmt)
endif()
add_library(ddprun::fmt ALIAS ddprun_fmt)
set_target_properties(ddprun_fmt PROPERTIES EXPORT_NAME fmt)
