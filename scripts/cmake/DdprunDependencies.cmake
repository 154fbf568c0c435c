# Every library from outside, found once. What is optional is reported in the configure summary.
find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED COMPONENTS filesystem json)
find_package(CLI11 REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(Gloo REQUIRED)
find_package(dnnl REQUIRED)
if(DDPRUN_BUILD_TESTS)
  find_package(Catch2 REQUIRED)
endif()

# Asio and Process v2 compiled once, not in every file that includes them.
add_library(ddprun_asio STATIC ${PROJECT_SOURCE_DIR}/scripts/cmake/asio.cc)
target_compile_definitions(ddprun_asio PUBLIC
  BOOST_ASIO_SEPARATE_COMPILATION BOOST_PROCESS_V2_SEPARATE_COMPILATION BOOST_ASIO_NO_DEPRECATED)
target_link_libraries(ddprun_asio PUBLIC Boost::headers Boost::filesystem Threads::Threads)
add_library(ddprun::asio ALIAS ddprun_asio)
set_target_properties(ddprun_asio PROPERTIES EXPORT_NAME asio)
