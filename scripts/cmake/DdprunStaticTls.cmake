# DDPRUN_STATIC_TLS: what programs that bind all symbols at their start link for TLS. A shared libcrypto would double the
# time until ddprun runs. The archives of some distributions (Debian 13) need those of compression beside them; without
# them the shared libraries are linked.
include(CheckCXXSourceCompiles)

cmake_path(GET OPENSSL_SSL_LIBRARY PARENT_PATH folder)
set(archives)
foreach(name ssl crypto z zstd)
  find_library(DDPRUN_LIB${name}_ARCHIVE lib${name}.a HINTS ${folder} NO_DEFAULT_PATH)
  mark_as_advanced(DDPRUN_LIB${name}_ARCHIVE)
  if(DDPRUN_LIB${name}_ARCHIVE)
    list(APPEND archives ${DDPRUN_LIB${name}_ARCHIVE})
  endif()
endforeach()

set(DDPRUN_STATIC_TLS OpenSSL::SSL)
if(DDPRUN_LIBssl_ARCHIVE AND DDPRUN_LIBcrypto_ARCHIVE)
  set(CMAKE_REQUIRED_INCLUDES ${OPENSSL_INCLUDE_DIR})
  set(CMAKE_REQUIRED_LIBRARIES ${archives} Threads::Threads ${CMAKE_DL_LIBS})
  check_cxx_source_compiles(
    "#include <openssl/ssl.h>
     int main() { return SSL_CTX_new(TLS_method()) == nullptr; }" DDPRUN_LINKS_STATIC_TLS)
  unset(CMAKE_REQUIRED_INCLUDES)
  unset(CMAKE_REQUIRED_LIBRARIES)
  if(DDPRUN_LINKS_STATIC_TLS)
    set(DDPRUN_STATIC_TLS ${archives} ${CMAKE_DL_LIBS})
  endif()
endif()
