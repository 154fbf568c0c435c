# The tests that need tensors.

# Real ddprun-worker, alone and under ddprun.
function(ddprun_worker_test name)
  ddprun_test(${name} ${ARGN} LIBS ddprun::common Boost::json)
  add_dependencies(${name} ddprun ddprun-worker)
  target_compile_definitions(${name} PRIVATE
    DDPRUN_PROGRAM="$<TARGET_FILE:ddprun>" DDPRUN_WORKER="$<TARGET_FILE:ddprun-worker>"
    DDPRUN_CONFIGS="${PROJECT_SOURCE_DIR}/configs" DDPRUN_GET_DATA="${PROJECT_SOURCE_DIR}/scripts/get-data")
endfunction()

ddprun_worker_test(worker_test SOURCES worker_test.cc)
ddprun_worker_test(training_test SOURCES training_test.cc)
ddprun_worker_test(usage_error_test SOURCES usage_error_test.cc)
ddprun_worker_test(agreement_test SOURCES agreement_test.cc)
target_link_libraries(agreement_test PRIVATE ZLIB::ZLIB)
ddprun_worker_test(configs_test SOURCES configs_test.cc TIMEOUT 300)
ddprun_worker_test(accuracy_test SOURCES accuracy_test.cc LABELS slow TIMEOUT 300)

ddprun_worker_test(cuda_training_test SOURCES cuda_training_test.cc TIMEOUT 300)
ddprun_emulated_cuda(cuda_training_test)
ddprun_worker_test(cuda_groups_test SOURCES cuda_groups_test.cc)
ddprun_emulated_cuda(cuda_groups_test)
ddprun_worker_test(cuda_faults_test SOURCES cuda_faults_test.cc TIMEOUT 300)
ddprun_emulated_cuda(cuda_faults_test)
ddprun_worker_test(cuda_devices_test SOURCES cuda_devices_test.cc TIMEOUT 300)
ddprun_emulated_cuda(cuda_devices_test)
ddprun_worker_test(cuda_settings_test SOURCES cuda_settings_test.cc TIMEOUT 300)
ddprun_emulated_cuda(cuda_settings_test)
ddprun_worker_test(cuda_profile_test SOURCES cuda_profile_test.cc TIMEOUT 300)
ddprun_emulated_cuda(cuda_profile_test)
ddprun_worker_test(parallel_forms_test SOURCES parallel_forms_test.cc TIMEOUT 300)
ddprun_worker_test(context_parallel_test SOURCES context_parallel_test.cc)
ddprun_worker_test(expert_parallel_test SOURCES expert_parallel_test.cc)
if(DDPRUN_HAS_OPENMPI OR DDPRUN_HAS_MPICH)
  ddprun_worker_test(mpi_test SOURCES mpi_test.cc)
endif()
ddprun_worker_test(plan_test SOURCES plan_test.cc)
ddprun_worker_test(quantize_test SOURCES quantize_test.cc)
ddprun_worker_test(tokenize_test SOURCES tokenize_test.cc)
ddprun_worker_test(predict_test SOURCES predict_test.cc)
target_link_libraries(predict_test PRIVATE ddprun::data ZLIB::ZLIB)
ddprun_worker_test(plugin_test SOURCES plugin_test.cc)
target_compile_definitions(plugin_test PRIVATE DDPRUN_PLUGINS="${PROJECT_BINARY_DIR}/tests/plugins")
ddprun_worker_test(profile_test SOURCES profile_test.cc)
target_compile_definitions(profile_test PRIVATE DDPRUN_PLUGINS="${PROJECT_BINARY_DIR}/tests/plugins")
ddprun_worker_test(stage_balance_test SOURCES stage_balance_test.cc)
target_compile_definitions(stage_balance_test PRIVATE DDPRUN_PLUGINS="${PROJECT_BINARY_DIR}/tests/plugins")
# Pages that quote both programs.
ddprun_process_test(documented_commands_test SOURCES documented_commands_test.cc LIBS ddprun::common)
add_dependencies(documented_commands_test ddprun-worker)
target_compile_definitions(documented_commands_test PRIVATE
  SOURCE_FOLDER="${PROJECT_SOURCE_DIR}" DDPRUN_WORKER="$<TARGET_FILE:ddprun-worker>"
  DDPRUN_PLUGINS="${PROJECT_BINARY_DIR}/tests/plugins")
add_subdirectory(plugins)

ddprun_process_test(recovery_test
  SOURCES preemption_test.cc recovery_test.cc
  LIBS ddprun::common
  TIMEOUT 300)
add_dependencies(recovery_test ddprun-worker)
ddprun_process_test(checkpoint_kills_test
  SOURCES checkpoint_kills_test.cc export_test.cc
  LIBS ddprun::checkpoint ddprun::common
  TIMEOUT 300)
add_dependencies(checkpoint_kills_test ddprun-worker)
target_compile_definitions(checkpoint_kills_test PRIVATE DDPRUN_WORKER="$<TARGET_FILE:ddprun-worker>")
ddprun_process_test(recovery_in_process_test
  SOURCES recovery_in_process_test.cc recovery_nodes_test.cc
  LIBS ddprun::common Boost::json
  TIMEOUT 600)
add_dependencies(recovery_in_process_test ddprun-worker)
ddprun_process_test(recovery_sharded_test
  SOURCES recovery_sharded_test.cc
  LIBS ddprun::common Boost::json
  TIMEOUT 600)
add_dependencies(recovery_sharded_test ddprun-worker slow_layers)
target_compile_definitions(recovery_sharded_test PRIVATE
  DDPRUN_WORKER="$<TARGET_FILE:ddprun-worker>" DDPRUN_PLUGINS="${PROJECT_BINARY_DIR}/tests/plugins")
ddprun_process_test(restoration_kills_test SOURCES restoration_kills_test.cc LIBS ddprun::common Boost::json TIMEOUT 300)
add_dependencies(restoration_kills_test ddprun-worker)
ddprun_process_test(lost_host_test SOURCES lost_host_test.cc LIBS ddprun::common Boost::json TIMEOUT 600)
add_dependencies(lost_host_test ddprun-worker)
target_compile_definitions(lost_host_test PRIVATE DDPRUN_WORKER="$<TARGET_FILE:ddprun-worker>")
ddprun_process_test(spares_test SOURCES spares_test.cc LIBS ddprun::common Boost::json TIMEOUT 600)
add_dependencies(spares_test ddprun-worker)
target_compile_definitions(spares_test PRIVATE DDPRUN_WORKER="$<TARGET_FILE:ddprun-worker>")
ddprun_process_test(node_changes_test SOURCES node_changes_test.cc LIBS ddprun::common Boost::json TIMEOUT 600)
add_dependencies(node_changes_test ddprun-worker)
target_compile_definitions(node_changes_test PRIVATE DDPRUN_WORKER="$<TARGET_FILE:ddprun-worker>")
ddprun_process_test(server_restart_test
  SOURCES server_restart_test.cc
  LIBS ddprun::common Boost::json
  TIMEOUT 600)
add_dependencies(server_restart_test ddprun-worker ddprun-store)
target_compile_definitions(server_restart_test PRIVATE STORE_PROGRAM="$<TARGET_FILE:ddprun-store>")
ddprun_process_test(standby_test SOURCES standby_test.cc LIBS ddprun::common Boost::json TIMEOUT 600)
add_dependencies(standby_test ddprun-worker)
ddprun_process_test(shards_test SOURCES shards_test.cc LIBS ddprun::common Boost::json TIMEOUT 300)
add_dependencies(shards_test ddprun-worker)
ddprun_process_test(chaos_test SOURCES chaos_nodes_test.cc chaos_test.cc LIBS ddprun::common TIMEOUT 300)
add_dependencies(chaos_test ddprun-worker)

ddprun_process_test(ledger_test
  SOURCES ledger_test.cc
  LIBS ddprun::common
  TIMEOUT 300)
add_dependencies(ledger_test ddprun-worker)
target_compile_definitions(ledger_test PRIVATE DDPRUN_WORKER="$<TARGET_FILE:ddprun-worker>")

ddprun_process_test(observability_test
  SOURCES observability_test.cc
  LIBS ddprun::common ddprun::asio Boost::json
  TIMEOUT 300)
add_dependencies(observability_test ddprun-worker)
target_compile_definitions(observability_test PRIVATE DDPRUN_DOCS="${PROJECT_SOURCE_DIR}/docs")

ddprun_test(preemption_storm_test SOURCES preemption_storm_test.cc LIBS ddprun::trainer ddprun::common DNNL::dnnl)

# The smallest complete program, as the README shows it.
ddprun_program(linear_two_ranks INTERNAL SOURCES linear_two_ranks.cc
  LIBS ddprun::parallel ddprun::optim ddprun::nn ddprun::autograd ddprun::tensor ddprun::comm ddprun::common)
ddprun_user_program(linear_two_ranks)
add_test(NAME linear_two_ranks COMMAND linear_two_ranks)
set_tests_properties(linear_two_ranks PROPERTIES
  LABELS "process;asan" TIMEOUT 60 ENVIRONMENT "${DDPRUN_TEST_ENVIRONMENT}"
  PASS_REGULAR_EXPRESSION "step 100  loss 0\\.0000")
ddprun_sanitizer_labels(linear_two_ranks asan)

# It names those above.
add_test(NAME "docs: torchrun-users.md names tests that there are"
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/check_test_names.sh ${CMAKE_CTEST_COMMAND} ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR}/docs/torchrun-users.md)
set_tests_properties("docs: torchrun-users.md names tests that there are" PROPERTIES LABELS process)
