# cpack -G DEB: packages for the Debian or Ubuntu that the build was made on.
#   ddprun       programs, manual page, completions, jobs, and the shared library for C
#   ddprun-mpi   the modules of the MPI back end, which bring Open MPI and MPICH
#   ddprun-dev   headers, static libraries and the CMake package
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "The developers of ddprun <ddprun@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL programs development)
if(DDPRUN_HAS_OPENMPI OR DDPRUN_HAS_MPICH)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)

set(CPACK_DEBIAN_PROGRAMS_PACKAGE_NAME ddprun)
set(CPACK_COMPONENT_PROGRAMS_DESCRIPTION "programs and jobs
 A launcher for the processes of distributed training jobs, which takes the
 options of torchrun and exports its environment, and a worker that trains.")
# The launcher starts Python scripts and logs in to hosts where these are there.
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SUGGESTS "python3, openssh-client")

set(CPACK_DEBIAN_MPI_PACKAGE_NAME ddprun-mpi)
set(CPACK_COMPONENT_MPI_DESCRIPTION "ddprun's back end for MPI
 Modules that let the process groups of ddprun communicate by Open MPI or MPICH.")
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "ddprun (= ${PROJECT_VERSION})")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME ddprun-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "headers and libraries of ddprun
 For C++ programs that train on several processes: find_package(ddprun).")
set(boost "libboost-dev (>= 1.81) | libboost1.81-dev")
foreach(library filesystem json)
  string(APPEND boost ", libboost-${library}-dev (>= 1.81) | libboost-${library}1.81-dev")
endforeach()
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "ddprun (= ${PROJECT_VERSION}), ${boost}, libcli11-dev, libspdlog-dev, libfmt-dev, libgloo-dev, libdnnl-dev, \
ocl-icd-opencl-dev, zlib1g-dev, libzstd-dev, libssl-dev, libicu-dev, libpng-dev, libjpeg-dev")
include(CPack)
