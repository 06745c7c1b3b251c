// The text of MODEL_DIR/history.json: what a run was, and how it went. Plain values in, text out; who writes it to disk
// is not this room's business.
#pragma once

#include <lockstep/core/history.hpp>

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <variant>

namespace lockstep {

/// Named values of any plain kind, e.g. {{"epochs", 10}, {"deterministic", false}}.
using Record = std::map<std::string, std::variant<bool, std::int64_t, std::uint64_t, double, std::string>>;

struct RunTiming {
  double seconds_to_first_step = std::numeric_limits<double>::quiet_NaN();  ///< from the process's start
  double peak_memory_mb = std::numeric_limits<double>::quiet_NaN();         ///< of the chief
  std::int64_t steps = 0;
  std::int64_t backups = 0;
  double ms_per_backup = 0;                                   ///< of the training thread; the rest is done beside it
  std::map<std::string, double> profile_ms_per_step = {};     ///< by kind of work; they sum up to "total"
  std::map<std::string, double> operations_ms_per_step = {};  ///< the kernels of forward and backward, each by name
};

struct RunReport {
  std::string model;  ///< its name
  History history;
  Logs evaluation;  ///< of the last evaluate(); empty where there was none
  Record config;    ///< every option
  Record world;     ///< workers, hosts, communication, device
  Record versions;  ///< lockstep, onednn, mpi, hdf5, ...
  RunTiming timing;
};

/// JSON, indented, with a newline at its end. Numbers that JSON does not know (NaN, infinity) become null, bytes that
/// are no UTF-8 U+FFFD. An epoch's number counts from 0, as in Keras' History; its logs stand beside it under their
/// names.
[[nodiscard]] std::string history_json(const RunReport& report);

}  // namespace lockstep
