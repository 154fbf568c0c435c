# ddprun::torch, compiled in the project that uses it, with its version of PyTorch: a library compiled for one version
# does not fit another. Included by ddprun's package for find_package(ddprun COMPONENTS torch).
if(NOT TARGET torch)
  find_dependency(Torch)
endif()
if(NOT TARGET ddprun::torch)
  get_target_property(include ddprun::comm INTERFACE_INCLUDE_DIRECTORIES)
  list(GET include 0 include)
  set(sources ${include}/ddprun/worker/libtorch)
  add_library(ddprun_torch STATIC ${sources}/distributed_data_parallel.cc ${sources}/parameters.cc)
  add_library(ddprun::torch ALIAS ddprun_torch)
  target_compile_features(ddprun_torch PUBLIC cxx_std_20)
  # Gloo first: PyTorch's libraries show a version of their own, to which ours would be bound.
  target_link_libraries(ddprun_torch PUBLIC gloo ddprun::recovery ddprun::reducer ddprun::comm ${TORCH_LIBRARIES})
  # In pip's build with CUDA, libtorch needs libraries of NVIDIA's wheels, which it finds by its own RPATH when it is
  # loaded, and the linker does not.
  target_link_options(ddprun_torch PUBLIC LINKER:--allow-shlib-undefined)
endif()
