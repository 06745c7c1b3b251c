// See other_variables.hpp.
#include "options/other_variables.hpp"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 20> launch_options{
    "LOCKSTEP_BUSY_TIMEOUT",       "LOCKSTEP_HEARTBEAT_TIMEOUT", "LOCKSTEP_INSECURE",        "LOCKSTEP_JOB_ID",
    "LOCKSTEP_JOB_NAME",           "LOCKSTEP_JOB_TOKEN",         "LOCKSTEP_JOB_TOKEN_FILE",  "LOCKSTEP_LEAVE_TIMEOUT",
    "LOCKSTEP_MAX_RESTARTS",       "LOCKSTEP_MIN_WORKERS",       "LOCKSTEP_MODEL_DIR",       "LOCKSTEP_MPI_PORTS",
    "LOCKSTEP_RANKS_PER_WORKER",   "LOCKSTEP_REJOIN_TIMEOUT",    "LOCKSTEP_REPORT_INTERVAL", "LOCKSTEP_STALL_TIMEOUT",
    "LOCKSTEP_RENDEZVOUS_TIMEOUT", "LOCKSTEP_START_TIMEOUT",     "LOCKSTEP_STATUS_PORT",     "LOCKSTEP_WORKERS"};

constexpr std::array<std::string_view, 11> others{
    "LOCKSTEP_COLLECTIVE_TIMEOUT",       "LOCKSTEP_COMMAND",         "LOCKSTEP_CONTROL_FD", "LOCKSTEP_CUDA_GRAPHS",
    "LOCKSTEP_CUDA_DIRECT_CONVOLUTIONS", "LOCKSTEP_DATA_MIRROR",     "LOCKSTEP_GENERATION", "LOCKSTEP_LAUNCH_ID",
    "LOCKSTEP_MEMBER_ADDRESSES",         "LOCKSTEP_SIMULATED_HOSTS", "LOCKSTEP_MNIST_DIR"};

template <typename List>
bool contains(const List& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

bool is_of_tests(std::string_view variable) {
  return variable.starts_with("LOCKSTEP_TEST_") || variable.starts_with("LOCKSTEP_BENCH_") ||
         variable.starts_with("LOCKSTEP_FAKE_");
}

/// {SVC}_SERVICE_HOST, {SVC}_SERVICE_PORT, {SVC}_SERVICE_PORT_{NAME}, {SVC}_PORT=tcp://...,
/// {SVC}_PORT_2222_TCP=tcp://... and {SVC}_PORT_2222_TCP_{PROTO,PORT,ADDR}.
bool is_service_variable(std::string_view variable, std::string_view value) {
  const auto has = [variable](std::string_view part) { return variable.find(part) != std::string_view::npos; };
  if (variable.ends_with("_SERVICE_HOST") || has("_SERVICE_PORT")) return true;
  if (!has("_PORT")) return false;
  for (const std::string_view part : {"_TCP_", "_UDP_", "_SCTP_"}) {
    if (has(part)) return true;
  }
  return value.find("://") != std::string_view::npos;
}

}  // namespace

bool has_other_reader(std::string_view variable, std::string_view value) {
  return contains(launch_options, variable) || contains(others, variable) || is_of_tests(variable) ||
         is_service_variable(variable, value);
}

}  // namespace lockstep
