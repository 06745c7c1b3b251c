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

constexpr std::array<std::string_view, 15> others{"LOCKSTEP_COLLECTIVE_TIMEOUT", "LOCKSTEP_COMMAND",
                                                  "LOCKSTEP_CONTROL_FD",         "LOCKSTEP_CUDA_GRAPHS",
                                                  "LOCKSTEP_CUDA_PROFILE",       "LOCKSTEP_CUDA_DIRECT_CONVOLUTIONS",
                                                  "LOCKSTEP_DATA_MIRROR",        "LOCKSTEP_EARLIER_GENERATIONS",
                                                  "LOCKSTEP_GENERATION",         "LOCKSTEP_KEPT_FILES",
                                                  "LOCKSTEP_LAUNCH_ID",          "LOCKSTEP_LIVE_REPORT",
                                                  "LOCKSTEP_MEMBER_ADDRESSES",   "LOCKSTEP_SIMULATED_HOSTS",
                                                  "LOCKSTEP_MNIST_DIR"};

/// Options of single programs.
constexpr std::array<std::string_view, 39> program_options{
    "LOCKSTEP_BANDWIDTH",       "LOCKSTEP_BASE",
    "LOCKSTEP_CSV_LOG",         "LOCKSTEP_DEPTH",
    "LOCKSTEP_EARLY_STOPPING",  "LOCKSTEP_EARLY_STOPPING_MIN_DELTA",
    "LOCKSTEP_EVAL_DIR",        "LOCKSTEP_EVAL_STEPS",
    "LOCKSTEP_EVAL_THROTTLE",   "LOCKSTEP_EXPORT",
    "LOCKSTEP_EXPORTS_TO_KEEP", "LOCKSTEP_EXPORT_DIR",
    "LOCKSTEP_FOLLOW",          "LOCKSTEP_FOLLOW_BACKUPS",
    "LOCKSTEP_FOLLOW_TIMEOUT",  "LOCKSTEP_KERNELS",
    "LOCKSTEP_LATENCY",         "LOCKSTEP_LOSS",
    "LOCKSTEP_MAX_BATCH",       "LOCKSTEP_MAX_BODY",
    "LOCKSTEP_MAX_CONNECTIONS", "LOCKSTEP_MAX_DELAY",
    "LOCKSTEP_MAX_RATE",        "LOCKSTEP_MAX_RECEIVED",
    "LOCKSTEP_MAX_WAITING",     "LOCKSTEP_METRICS",
    "LOCKSTEP_MODEL",           "LOCKSTEP_MODEL_NAME",
    "LOCKSTEP_MONITOR",         "LOCKSTEP_OPTIMIZER",
    "LOCKSTEP_OUTPUT",          "LOCKSTEP_REQUEST_TIMEOUT",
    "LOCKSTEP_REST_API_PORT",   "LOCKSTEP_SAVE_AS",
    "LOCKSTEP_SERVERS",         "LOCKSTEP_TENSORBOARD_DIR",
    "LOCKSTEP_TRAIN_STEPS",     "LOCKSTEP_VALIDATION_FREQ",
    "LOCKSTEP_VALIDATION_SPLIT"};

/// Of tests and benchmarks.
constexpr std::array<std::string_view, 22> test_variables{
    "LOCKSTEP_BENCH_CORE",      "LOCKSTEP_BENCH_FILE",      "LOCKSTEP_TEST_CONVOLUTIONS", "LOCKSTEP_TEST_DEVICE",
    "LOCKSTEP_TEST_FAULT",      "LOCKSTEP_TEST_FAULT_CALL", "LOCKSTEP_TEST_FAULT_ONCE",   "LOCKSTEP_TEST_FAULT_POINT",
    "LOCKSTEP_TEST_GENERATION", "LOCKSTEP_TEST_HISTORY",    "LOCKSTEP_TEST_KILL_READER",  "LOCKSTEP_TEST_MODELS",
    "LOCKSTEP_TEST_NFS_LOCKS",  "LOCKSTEP_TEST_NO_LOCKS",   "LOCKSTEP_TEST_NO_PROCESSES", "LOCKSTEP_TEST_NO_THREADS",
    "LOCKSTEP_TEST_PROGRAMS",   "LOCKSTEP_TEST_RANK",       "LOCKSTEP_TEST_READ_ONLY",    "LOCKSTEP_TEST_STEP_MS",
    "LOCKSTEP_TEST_TRACE",      "LOCKSTEP_TEST_WATCH"};

template <typename List>
bool contains(const List& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
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
  return contains(launch_options, variable) || contains(others, variable) || contains(test_variables, variable) ||
         variable.starts_with("LOCKSTEP_FAKE_GPU") || is_service_variable(variable, value);
}

bool is_of_another_program(std::string_view variable) { return contains(program_options, variable); }

}  // namespace lockstep
